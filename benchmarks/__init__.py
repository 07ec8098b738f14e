"""Benchmarks of speed and memory: `python -m benchmarks` runs them and reports regressions."""
