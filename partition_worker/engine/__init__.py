"""The scheduler itself, pure: the same inputs at the same times give the same effects. `partition.py` is the way in."""
