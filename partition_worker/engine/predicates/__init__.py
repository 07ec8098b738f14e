"""What an ask demands of a node besides room, and who decides whether a node meets it."""
