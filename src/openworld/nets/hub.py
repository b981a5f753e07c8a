"""Backbones from the Hugging Face hub, or from a folder in its format, by the library transformers.

We use transformers, not timm: timm imports torchvision, which cannot be imported beside a torch without CUDA. It is
imported only when such a backbone is used.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from openworld.core.errors import UserError, named

USUAL_SIDE = 224
USUAL_MEAN, USUAL_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Preprocessing of ImageNet, for a model that does not state its own."""
NOT_STATED = "not stated"
BRING = "config.json, preprocessor_config.json, README.md and model.safetensors"


class HubModel(nn.Module):
    """Map normalised images (B, 3, S, S) to features (B, D): the class token, or what the model pools itself."""

    def __init__(self, model: nn.Module, uses_pooler: bool, side: int):
        super().__init__()
        self.tower = getattr(model, "vision_model", model)  # CLIP and SigLIP have a text tower beside it
        self.uses_pooler = uses_pooler
        with torch.inference_mode():  # each family of models says in its own way how wide its features are
            self.num_features: int = self.eval()(torch.zeros(1, 3, side, side)).shape[1]

    def forward(self, images: Tensor) -> Tensor:
        outputs = self.tower(pixel_values=images)
        return outputs.pooler_output.flatten(1) if self.uses_pooler else outputs.last_hidden_state[:, 0]

    def stages(self) -> list[nn.Module]:
        """Return the blocks in their order. Some models hold them in one list, others in one list for each stage."""
        return [block for stage in _main_list(self.tower) for block in _main_list(stage) or [stage]]


def _main_list(module: nn.Module) -> list[nn.Module]:
    """Return the outermost list of modules that holds more than half of the weights of a module; empty if none does."""
    for part in module.children():
        if 2 * _num_weights(part) > _num_weights(module):
            is_list = isinstance(part, (nn.ModuleList, nn.Sequential))
            return list(part) if is_list else _main_list(part)
    return []


def _num_weights(module: nn.Module) -> int:
    return sum(weights.numel() for weights in module.parameters())


def built(architecture: dict[str, Any], side: int) -> HubModel:
    """Return a model with random weights from what `fetched` recorded about it."""
    transformers = _transformers()
    config = transformers.AutoConfig.for_model(**architecture["config"])
    return HubModel(transformers.AutoModel.from_config(config), architecture["uses_pooler"], side)


def fetched(name: str) -> tuple[HubModel, dict[str, Any], dict[str, Any]]:
    """Return a model with its weights, what `built` needs to build it again, and its preprocessing and licence.

    Args:
        name: name of a model on the hub, or path of a folder with its files.
    """
    transformers = _transformers()
    flag = named("backbone", name)
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        model, report = transformers.AutoModel.from_pretrained(
            name, use_safetensors=True, output_loading_info=True, trust_remote_code=False
        )
    except (
        Exception
    ) as error:  # it raises many types of errors: for a missing file, no network, an unknown architecture
        reason = " ".join(str(error).split()).partition(". ")[0][:160]
        if Path(name).is_dir():
            raise UserError(f"{flag}: the folder must hold {BRING} as on the hub ({reason})") from None
        raise UserError(
            f"{flag}: the model could not be fetched ({reason}); without a network, put {BRING} of the model into a "
            f"folder and give its path"
        ) from None
    # A model for images alone may lack the weights of its pooler, but then it has a class token
    uses_pooler = hasattr(model, "text_model") or not any("cls_token" in key for key in model.state_dict())
    missing = [key for key in report["missing_keys"] if uses_pooler or "pooler" not in key]
    if missing or report["mismatched_keys"]:
        what = f"{missing[0]} is missing" if missing else "shapes differ"
        raise UserError(f"{flag}: the weights are of another network than its config.json says: {what}")
    facts = {**_preprocessing(name, config), "licence": _licence(name)}
    try:
        found = HubModel(model, uses_pooler, facts["side"])
    except Exception as error:  # each model fails in its own way if it does not take images
        reason = " ".join(str(error).split())[:160]
        raise UserError(f"{flag}: {config.model_type} gives no features of an image ({reason})") from None
    return found, {"config": config.to_dict(), "uses_pooler": uses_pooler}, facts


def _transformers() -> Any:
    """Return the library, or raise a UserError that says how to install it."""
    try:
        import transformers
    except ImportError as error:
        raise UserError(
            f"{named('backbone')}: models of the hub need the library transformers ({error}); "
            "install it with: pip install transformers"
        ) from None
    transformers.logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)  # it would log each retry
    transformers.logging.disable_progress_bar()
    return transformers


def _preprocessing(name: str, config: Any) -> dict[str, Any]:
    """Return the side, mean and standard deviation of the images that the model was trained on."""
    content = _text(name, "preprocessor_config.json")
    if content is None:
        assumed = "so the mean and standard deviation of ImageNet's images are assumed"
        print(f"warning: {name} has no preprocessor_config.json, {assumed}", file=sys.stderr, flush=True)
    try:
        stated = json.loads(content or "{}")
    except ValueError as error:
        raise UserError(f"{named('backbone', name)}: preprocessor_config.json is damaged ({error})") from None
    size = stated.get("crop_size") or stated.get("size") or {}
    vision = getattr(config, "vision_config", config)
    sides = [size] if isinstance(size, int) else [size.get(key) for key in ("height", "shortest_edge")]
    side = next(filter(None, [*sides, getattr(vision, "image_size", None)]), USUAL_SIDE)
    return {
        "side": int(side[0] if isinstance(side, (list, tuple)) else side),
        "mean": tuple(stated.get("image_mean") or USUAL_MEAN),
        "std": tuple(stated.get("image_std") or USUAL_STD),
    }


def _licence(name: str) -> str:
    """Return the licence that the model card states."""
    lines = (_text(name, "README.md") or "").splitlines()
    stated = (line.partition(":")[2].strip() for line in lines[:40] if line.startswith(("license:", "license_name:")))
    return next(filter(None, stated), NOT_STATED)


def _text(name: str, file: str) -> str | None:
    """Return the text of a file of the model, or None if there is none."""
    if Path(name).is_dir():
        path = Path(name) / file
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, file)).read_text(encoding="utf-8", errors="replace")
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError):
        return None
