"""The queue tree: queues, their configuration, accounting, and fair share."""
