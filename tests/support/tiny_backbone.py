"""Small backbones with random weights, for tests that need no good features."""

from pathlib import Path

import torch

from openworld.nets.backbones import LITE_PIXELS, Backbone, _described
from openworld.nets.efficientnet_lite import VARIANTS, EfficientNetLite
from openworld.ops.rng import generator

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
IMAGES = {"image_size": 32, "patch_size": 8}


def tiny_backbone(seed: int = 0, side: int = 32) -> Backbone:
    """Return an EfficientNet-Lite0 with random weights for small images."""
    body, source = EfficientNetLite(VARIANTS["efficientnet-lite0"]), generator(seed, "tiny backbone")
    for parameter in body.parameters():
        spread = (2 / parameter[0].numel()) ** 0.5 if parameter.dim() > 1 else 0.1
        parameter.data = spread * torch.randn(parameter.shape, generator=source)
    return _described("tiny", "efficientnet-lite0", body, {"side": side, "licence": "MIT", **LITE_PIXELS})


def tiny_hub_folder(family: str, folder: Path) -> Path:
    """Write a model with random weights as the hub has it, and return the folder."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    if family == "clip":
        text = {**SIZES, "vocab_size": 100}
        model = transformers.CLIPModel(transformers.CLIPConfig(vision_config=SIZES | IMAGES, text_config=text))
    elif family == "convnext":
        model = transformers.ConvNextModel(
            transformers.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1])
        )
    elif family == "bert":
        model = transformers.BertModel(transformers.BertConfig(**SIZES, vocab_size=100))
    else:
        model = transformers.Dinov2Model(transformers.Dinov2Config(**SIZES, **IMAGES))
    model.save_pretrained(folder)
    return folder
