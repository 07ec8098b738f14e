"""A worker: everything of one partition."""
