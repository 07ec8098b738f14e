"""The documents of the REST API, which workers build and the command line reads."""
