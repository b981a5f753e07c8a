"""How work reaches a device and runs there: the runtime, copies, compiled functions, CUDA graphs.

Nothing in this room changes a result beyond rounding.
It may import `core`.
"""
