"""The methods, by name: a plain dict."""

from openworld.methods.base import Method
from openworld.methods.simclr import Simclr
from openworld.methods.trssl import Trssl

METHODS: dict[str, type[Method]] = {"trssl": Trssl, "simclr": Simclr}
