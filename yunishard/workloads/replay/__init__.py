"""The main job: a workload log, replayed through the system."""
