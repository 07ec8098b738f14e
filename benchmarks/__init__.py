"""Measurements of what has to be fast: `python -m benchmarks` runs them, and says what has become worse."""
