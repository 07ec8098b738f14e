"""Measurements of what has to be fast; `make bench` runs them. They judge nothing: a person reads the table."""
