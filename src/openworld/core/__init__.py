"""Settings, errors, files and progress display: the parts that every other package needs.

This package does not import torch, so `openworld --help` starts at once. It may import no other package, except the
options of the methods (`openworld.methods`), which do not import torch either.
"""
