"""The worker's journal: every step of its partition, on the disk before anybody hears of it."""
