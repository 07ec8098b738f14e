"""The state dump: everything that the scheduler knows at one moment, in one document."""
