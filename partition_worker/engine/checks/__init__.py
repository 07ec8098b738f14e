"""Whether everything is as it must be."""
