"""PostgreSQL as the store of several hosts: connections, leases, sessions and tables."""
