"""Applications, their states, and the asks they have."""
