"""Tests of the state dump."""
