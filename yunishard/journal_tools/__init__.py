"""The command `yunishard journal`: what operators read from a journal, replay and export."""
