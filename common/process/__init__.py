"""The shell of every server process: its start and end, logs, limits, metrics and files."""
