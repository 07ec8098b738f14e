"""The scheduling cycle: which decision is made next."""
