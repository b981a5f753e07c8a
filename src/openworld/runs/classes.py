"""The class names of a network's outputs: those from training, and those that users give to novel classes later.

Outputs with the same name form one class. Merging classes means giving them the same name.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from openworld.core.errors import UserError, did_you_mean, is_utf8
from openworld.runs.folder import RunFolder

NAMES = "names.json"
"""File in the run folder with the names that users gave to outputs."""


@dataclass(frozen=True)
class Classes:
    """The names of K outputs, seen classes first. They form M classes, because several outputs may share a name."""

    outputs: tuple[str, ...]
    """Names from training: the names of the seen classes, then novel-1, novel-2, ..."""
    num_seen: int
    given: dict[str, str] = field(default_factory=dict)
    """New names of novel outputs, given by users."""

    @classmethod
    def of(cls, run: RunFolder) -> "Classes":
        """Read the class names of a run, including those that users gave."""
        split, facts = run.split_and_facts()
        if "class_names" not in facts:
            raise UserError(f"{run.path}: split.json has no class names; train the run again with this version")
        text = run.read(NAMES)
        try:
            given = dict(json.loads(text)) if text else {}
            if not all(isinstance(name, str) for name in given.values()):
                raise ValueError
        except (ValueError, TypeError):
            raise UserError(f"{run.path / NAMES} is damaged; delete it and name the classes again") from None
        return cls(tuple(facts["class_names"]), split.num_seen, given)

    @property
    def name_of_each_output(self) -> tuple[str, ...]:
        """The current name of each of the K outputs."""
        return tuple(self.given.get(output, output) for output in self.outputs)

    @property
    def outputs_by_name(self) -> dict[str, list[str]]:
        """The outputs that form each class."""
        outputs: dict[str, list[str]] = {}
        for output, name in zip(self.outputs, self.name_of_each_output, strict=True):
            outputs.setdefault(name, []).append(output)
        return outputs

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the M classes, seen classes first."""
        return tuple(dict.fromkeys(self.name_of_each_output))

    def sum_by_class(self, values_NK: Tensor) -> Tensor:
        """Return (N, M): the sum of the values of all outputs that belong to each class."""
        position = {name: number for number, name in enumerate(self.names)}
        columns = torch.tensor([position[name] for name in self.name_of_each_output], device=values_NK.device)
        return values_NK.new_zeros(len(values_NK), len(self.names)).index_add_(1, columns, values_NK)

    def renamed(self, found: str, name: str) -> "Classes":
        """Return a copy in which all outputs of a novel class have another name; their old name undoes this."""
        name = " ".join(name.split())
        name = next((existing for existing in self.names if " ".join(existing.split()) == name), name)
        if not name:
            raise UserError(f"{found}: the new name is empty; use {found}=NAME")
        if not is_utf8(name):
            raise UserError(f"{found}: the new name {name!a} is not valid UTF-8; choose another name")
        outputs = self._novel_outputs_of(found)
        other = next((other for other in self.names if other.casefold() == name.casefold() and other != name), None)
        if other and other not in (found, *outputs):
            differs = f"{name} differs from the class {other} only in upper and lower case"
            raise UserError(f"{differs}; use {other} or another name")
        if name in self.outputs[self.num_seen :] and name not in outputs:
            raise UserError(f"{name} is another novel class; to merge the two, use --merge {found} {name}")
        given = {**self.given, **dict.fromkeys(outputs, name)}
        return replace(self, given={output: name for output, name in given.items() if output != name})

    def merged(self, found: Sequence[str]) -> "Classes":
        """Return a copy in which these novel classes are one class, with the name of the first."""
        if len(set(found)) < 2:
            raise UserError("--merge needs two or more different classes")
        outputs = [output for name in found for output in self._novel_outputs_of(name)]
        given = {**self.given, **dict.fromkeys(outputs, self.given.get(outputs[0], outputs[0]))}
        return replace(self, given={output: name for output, name in given.items() if output != name})

    def _novel_outputs_of(self, found: str) -> list[str]:
        """Return the novel outputs that have this name now, or the one that had it in training."""
        novel = self.outputs[self.num_seen :]
        matching = [output for output in novel if self.given.get(output, output) == found]
        if matching or found in novel:
            return matching or [found]
        if found in self.names:
            raise UserError(f"{found} is a seen class; only novel classes can be renamed or merged")
        names = self.names[self.num_seen :]
        listed = ", ".join(names) or "none"
        raise UserError(f"{found} is not a novel class{did_you_mean(found, names)} (novel classes: {listed})")
