"""The methods, by name: one dict, from which flags, sections of a configuration and lists of methods are made.

Free of torch: a name leads to the options of a method, and they to the method itself (`options.method()`).
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
