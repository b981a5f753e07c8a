"""What the outputs of a network are called: as training named them, or as people have named them since.

Outputs that bear one name are one class: to merge is to give the same name.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from openworld.core.errors import UserError, did_you_mean, is_utf8
from openworld.runs.folder import RunFolder

NAMES = "names.json"
"""In the run folder: the names that people gave, by output."""


@dataclass(frozen=True)
class Classes:
    """The names of K outputs, seen classes first; M classes, since several outputs may be one."""

    outputs: tuple[str, ...]
    """As training named them: the labels' own names, then novel-1, novel-2, ..."""
    num_seen: int
    given: dict[str, str] = field(default_factory=dict)
    """The names that people gave to novel outputs."""

    @classmethod
    def of(cls, run: RunFolder) -> "Classes":
        split, facts = run.split_and_facts()
        if "class_names" not in facts:
            raise UserError(f"{run.path}: its split.json does not name its classes; train it anew with this version")
        text = run.read(NAMES)
        try:
            given = dict(json.loads(text)) if text else {}
            if not all(isinstance(name, str) for name in given.values()):
                raise ValueError
        except (ValueError, TypeError):
            raise UserError(f"{run.path / NAMES} is damaged: remove it, and name the classes again") from None
        return cls(tuple(facts["class_names"]), split.num_seen, given)

    @property
    def name_of_each_output(self) -> tuple[str, ...]:
        """The name of each output."""
        return tuple(self.given.get(output, output) for output in self.outputs)

    @property
    def outputs_by_name(self) -> dict[str, list[str]]:
        """What each class is made of."""
        made_of: dict[str, list[str]] = {}
        for output, name in zip(self.outputs, self.name_of_each_output, strict=True):
            made_of.setdefault(name, []).append(output)
        return made_of

    @property
    def names(self) -> tuple[str, ...]:
        """The M classes, each once; the seen ones first."""
        return tuple(dict.fromkeys(self.name_of_each_output))

    def sum_by_class(self, shares_NK: Tensor) -> Tensor:
        """(N, M): what the outputs of one name have together."""
        position = {name: number for number, name in enumerate(self.names)}
        columns = torch.tensor([position[name] for name in self.name_of_each_output], device=shares_NK.device)
        return shares_NK.new_zeros(len(shares_NK), len(self.names)).index_add_(1, columns, shares_NK)

    def renamed(self, found: str, name: str) -> "Classes":
        """With another name for a novel class, all outputs of it; its own old name takes that back."""
        name = " ".join(name.split())
        name = next((there for there in self.names if " ".join(there.split()) == name), name)
        if not name:
            raise UserError(f"{found}: its new name is empty")
        if not is_utf8(name):
            raise UserError(f"{found}: its new name {name!a} is not valid UTF-8")
        outputs = self._outputs_called(found)
        other = next((other for other in self.names if other.casefold() == name.casefold() and other != name), None)
        if other and other not in (found, *outputs):
            raise UserError(f"{name}: there is {other} already, which differs only in spelling; choose one")
        if name in self.outputs[self.num_seen :] and name not in outputs:
            raise UserError(f"{name} is another class that was found; to put the two together: --merge {found} {name}")
        given = {**self.given, **dict.fromkeys(outputs, name)}
        return replace(self, given={output: name for output, name in given.items() if output != name})

    def merged(self, found: Sequence[str]) -> "Classes":
        """With one name, that of the first, for all of these novel classes."""
        if len(set(found)) < 2:
            raise UserError("--merge needs two classes or more")
        outputs = [output for name in found for output in self._outputs_called(name)]
        given = {**self.given, **dict.fromkeys(outputs, self.given.get(outputs[0], outputs[0]))}
        return replace(self, given={output: name for output, name in given.items() if output != name})

    def _outputs_called(self, found: str) -> list[str]:
        """The novel outputs that bear a name now, or the one that training gave this name."""
        novel = self.outputs[self.num_seen :]
        called = [output for output in novel if self.given.get(output, output) == found]
        if called or found in novel:
            return called or [found]
        if found in self.names:
            raise UserError(f"{found} is a class of your labels: only classes that were found can be named")
        there = self.names[self.num_seen :]
        listed = ", ".join(there) or "none"
        raise UserError(f"{found}: no such class was found{did_you_mean(found, there)} (there are {listed})")
