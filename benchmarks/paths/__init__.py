"""The ways on which a workload gets to a scheduler that runs: the native protocol and the scheduler interface."""
