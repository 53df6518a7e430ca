"""Trained runs for other tools: one module for each format."""

from elman.export.exporting import FORMAT, FORMATS, export_run
