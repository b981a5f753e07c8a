"""Settings, errors, files and progress: what every other room needs, and nothing that computes.

This room is free of torch, so that `openworld --help` starts at once.
It imports no other room, except the options of the methods (`openworld.methods`), which are free of torch too.
"""
