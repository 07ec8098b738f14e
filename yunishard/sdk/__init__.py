"""The SDK: what a resource manager imports."""
