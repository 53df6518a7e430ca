"""Measurements against peers, in one run."""
