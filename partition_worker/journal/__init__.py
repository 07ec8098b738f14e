"""The worker's journal: it stores every step of the partition before any message about it is sent."""
