"""The commands for a store in PostgreSQL and for backups, which use the protocols of broker and worker."""
