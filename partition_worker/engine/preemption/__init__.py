"""Who has to go so that somebody more deserving can run."""
