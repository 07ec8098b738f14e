"""The queue tree: what a queue is, how the tree is built from configuration, and what its queues may still use."""
