"""Nodes and the order in which they are tried."""
