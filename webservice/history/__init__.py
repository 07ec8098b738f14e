"""The history: what there was over time in all partitions, in a file that outlives restarts."""
