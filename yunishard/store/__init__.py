"""The command for a store in PostgreSQL, which reads and writes through the protocols of broker and worker."""
