"""Runs the command line as `python -m elman`."""

from elman.cli.main import main

main()
