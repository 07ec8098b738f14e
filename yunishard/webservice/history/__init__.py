"""The history: the past of all partitions, in a file that survives restarts."""
