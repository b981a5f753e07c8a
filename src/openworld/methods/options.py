"""What the options of every method have in common. Free of torch: `openworld --help` reads the options."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from openworld.methods.base import Method


@dataclass(frozen=True, kw_only=True)
class MethodOptions(ABC):
    """The settings of one method: a frozen dataclass with a docstring under each field.

    A field `epsilon` of the method `uno` is the flag `--epsilon`, or `--uno.epsilon`, and in a configuration file the
    key `epsilon` of the section `[uno]`.
    """

    recipe: ClassVar[str | None] = None
    """The recipe that this method takes on a benchmark; None: the usual one of the benchmark."""
    needs: ClassVar[dict[str, str]] = {}
    """Options that do nothing while another one is off."""

    @classmethod
    @abstractmethod
    def method(cls) -> type["Method"]:
        """The method itself. It needs torch, so import it here and not above."""
