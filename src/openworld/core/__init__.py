"""Settings, errors, files and progress display: the parts that every other room needs.

This room does not import torch, so `openworld --help` starts at once. It may import no other room, except the
options of the methods (`openworld.methods`), which do not import torch either.
"""
