"""What the word of a resource manager does to a partition."""
