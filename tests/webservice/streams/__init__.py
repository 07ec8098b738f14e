"""Tests of the events as they happen."""
