"""The queue configuration: its typed form, parsing from YAML, validation, and the comparison of two configurations."""
