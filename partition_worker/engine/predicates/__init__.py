"""Predicates: which nodes an ask may run on, by its tags and by what the RM answers."""
