"""The resource manager's side: the SDK, the command line, and the replay of workload logs."""
