"""Who is next, and who waits for what."""
