"""The operators' command line, and `yunishard top`."""
