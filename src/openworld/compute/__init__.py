"""How work runs on a device: the runtime, copies to the device, compiled functions and CUDA graphs.

Nothing in this room changes a result beyond rounding.
It may import `core`.
"""
