"""`python -m elman` is the command line."""

from elman.cli.main import main

main()
