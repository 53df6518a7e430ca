"""Attacks on what the project promises: scripts with a count and a time budget, whose short forms are tests."""
