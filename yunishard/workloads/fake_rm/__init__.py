"""A ready-made resource manager without a cluster: it reports simulated nodes, and plays applications on them."""
