"""The commands, one file each: `add` says what it is called and takes, `run` does it."""
