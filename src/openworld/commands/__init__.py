"""The commands, one file each. `add` declares name and flags, `run` does the work.

A command imports torch only when it runs, so that `openworld --help` starts at once.
It may import every room.
"""
