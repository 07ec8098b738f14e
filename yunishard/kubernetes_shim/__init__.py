"""A resource manager for Kubernetes: pods become asks, allocations become bindings."""
