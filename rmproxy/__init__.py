"""The proxy: the ports that resource managers connect to."""
