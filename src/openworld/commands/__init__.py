"""The commands of the command line, one file each. `add` declares the name and the flags, `run` does the work.

A command imports torch only when it runs, so that `openworld --help` starts at once.
It may import every room.
"""
