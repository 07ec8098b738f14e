"""Explanations: why an ask, an application, a queue or a node waits, and the smallest changes that would help.

Explanations evaluate the functions that the scheduler evaluates, in the same order, and change nothing.
"""
