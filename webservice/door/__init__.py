"""Who somebody is that asks over REST, and which routes they may use."""
