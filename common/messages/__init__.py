"""Messages: their kinds and encoding, those of the RM protocol, and those between the processes."""
