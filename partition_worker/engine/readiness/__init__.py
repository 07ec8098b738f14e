"""Which queues, applications and asks are worth an attempt now."""
