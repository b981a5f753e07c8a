"""The base class of all options. It must not import torch, because `openworld --help` reads the options."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from openworld.methods.base import Method


@dataclass(frozen=True, kw_only=True)
class MethodOptions(ABC):
    """The settings of one method: a frozen dataclass with a docstring under each field.

    A field `epsilon` of the method `uno` becomes the flag `--epsilon` (or `--uno.epsilon`), and the key `epsilon` in
    the section `[uno]` of a configuration file.
    """

    recipe: ClassVar[str | None] = None
    """The recipe that `--recipe auto` chooses for this method on a benchmark. None: the benchmark's usual recipe."""
    needs: ClassVar[dict[str, str]] = {}
    """Options that do nothing while another option is off: `{"threshold": "mixed_labels"}`."""

    @classmethod
    @abstractmethod
    def method(cls) -> type["Method"]:
        """Return the class of the method. It needs torch, so import it in this function and not at the top."""
