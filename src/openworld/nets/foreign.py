"""Read weights that other programs wrote. This is the only place that may open a pickled file, and it runs no code."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from openworld.core.errors import UserError

PICKLED = (".pth", ".pt", ".bin")
"""Extensions of files that torch.save writes. They may contain code, which `weights_only` never runs."""
SUFFIXES = (".safetensors", *PICKLED)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name. Raise a UserError if the file contains anything else, or is damaged."""
    refusal = f"{path}: the file is damaged, or contains more than weights, and was not loaded; download it again"
    try:
        if path.suffix.lower() in PICKLED:
            found = torch.load(path, map_location="cpu", weights_only=True)
        else:
            found = load_file(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    except MemoryError:
        raise
    except Exception:  # torch's reader raises many types of errors on a damaged or hostile file
        raise UserError(refusal) from None
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
    ):
        raise UserError(refusal)
    return found
