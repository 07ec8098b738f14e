"""Simulation of a cluster in virtual time, and the figures, comparison and report of its runs."""
