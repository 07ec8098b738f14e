"""How messages travel: the event loop with its ZeroMQ sockets, CURVE keys and bearer tokens."""
