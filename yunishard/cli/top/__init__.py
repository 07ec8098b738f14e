"""`yunishard top`: the running system in a terminal, full screen and live."""
