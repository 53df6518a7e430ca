"""Serving: trained models behind HTTP, with continuous batching and sessions whose state is a value."""
