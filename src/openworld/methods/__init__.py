"""The methods: a dict from the name of a method to its options, and one file for each method.

This module and the options do not import torch: `options.method()` imports the method when it is needed.
The methods themselves may import `core`, `compute`, `ops`, `data` and `nets`.
"""

from openworld.methods.options import MethodOptions
from openworld.methods.simclr_options import SimclrOptions
from openworld.methods.trssl_options import TrsslOptions
from openworld.methods.trssl_plus_options import TrsslPlusOptions

METHODS: dict[str, type[MethodOptions]] = {
    "trssl": TrsslOptions,
    "trssl+": TrsslPlusOptions,
    "simclr": SimclrOptions,
}
