"""What is decided next: the turns of a scheduling cycle."""
