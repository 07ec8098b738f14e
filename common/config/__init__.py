"""The queue configuration: its typed form, its strict reading from YAML, and the rules it must obey."""
