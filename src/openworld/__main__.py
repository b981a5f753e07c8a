"""Run the command line with `python -m openworld`."""

from openworld.cli import main

main()
