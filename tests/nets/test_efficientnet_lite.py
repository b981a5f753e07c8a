"""EfficientNet-Lite: written here, with published weights."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import nn

from openworld.nets.backbones import DEFAULT, find_backbone, installed_file
from openworld.nets.efficientnet_lite import EPSILON, VARIANTS, Conv, EfficientNetLite, body_of
from openworld.nets.foreign import read_weights

AROUND_FLOWERS = {309, 599, 985}
"""ImageNet's numbers of what it has instead of the dahlia on scikit-learn's photo: bee, honeycomb, daisy."""
PAGODAS = {663, 698, 832, 668}
"""Its numbers of buildings like the one on the photo of China: monastery, palace, stupa, mosque."""


@pytest.mark.parametrize(("size", "stride", "side"), [(3, 2, 8), (3, 2, 7), (5, 2, 8), (5, 1, 8), (1, 1, 4)])
def test_padding_is_that_of_tensorflow(size, stride, side):
    """Output pixel i sees the input from i * stride - (total padding) // 2 on."""
    conv = Conv(1, 1, size, stride).requires_grad_(False)
    image = torch.rand(1, 1, side, side)
    total = max((-(-side // stride) - 1) * stride + size - side, 0)
    padded = F.pad(image, (total // 2, total - total // 2) * 2)
    expected = F.conv2d(padded, conv.weight, conv.bias, stride)
    torch.testing.assert_close(conv(image), expected)
    assert conv(image).shape[-1] == -(-side // stride)


def published(variant: str) -> dict[str, torch.Tensor]:
    """Return random weights as they are published: convolutions without biases, and BatchNorm beside them."""
    in_a_block = {"expand": ("_expand_conv", "_bn0"), "depthwise": ("_depthwise_conv", "_bn1")}
    in_a_block["project"] = ("_project_conv", "_bn2")
    weights = {}
    for name, value in EfficientNetLite(VARIANTS[variant]).state_dict().items():
        *place, part, kind = name.split(".")
        if kind == "bias":
            continue
        if place:
            conv, norm = (f"_{'.'.join(place)}.{each}" for each in in_a_block[part])
        else:
            conv, norm = {"stem": ("_conv_stem", "_bn0"), "last": ("_conv_head", "_bn1")}[part]
        weights[f"{conv}.weight"] = value
        for statistic in ("weight", "bias", "running_mean", "running_var"):
            weights[f"{norm}.{statistic}"] = torch.rand(len(value)) + 0.5
    return weights


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_is_known_by_its_weights(variant):
    assert body_of(published(variant))[0] == variant


def test_weights_of_another_network_are_not_taken():
    assert body_of({"conv1.weight": torch.zeros(64, 3, 7, 7)}) is None
    assert body_of({**published("efficientnet-lite0"), "_conv_stem.weight": torch.zeros(16, 3, 3, 3)}) is None


def test_batchnorm_is_folded_into_the_convolutions():
    weights = published("efficientnet-lite0")
    _, body = body_of(weights)
    norm = nn.BatchNorm2d(32, eps=EPSILON).eval()
    norm.load_state_dict(
        {k: weights[f"_bn0.{k}"] for k in ("weight", "bias", "running_mean", "running_var")}, strict=False
    )
    image = torch.rand(2, 3, 32, 32)
    plain = F.conv2d(F.pad(image, (0, 1, 0, 1)), weights["_conv_stem.weight"], None, 2)
    torch.testing.assert_close(body.stem(image), norm(plain), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(installed_file(DEFAULT) is None, reason="the package with the weights is not installed")
@pytest.mark.parametrize(("photo", "expected"), [("flower.jpg", AROUND_FLOWERS), ("china.jpg", PAGODAS)])
def test_with_the_published_classifier_it_recognises_photos(photo, expected):
    """The layer that turns features into the classes of ImageNet is in the file, too: an oracle for all the rest."""
    weights, backbone = read_weights(installed_file(DEFAULT)), find_backbone(DEFAULT)
    pixels = load_sample_image(photo)
    side = min(pixels.shape[:2])
    image = Image.fromarray(pixels).crop((0, 0, side, side)).resize((260, 260), Image.Resampling.BICUBIC)
    features = backbone(torch.tensor(np.array(image)).permute(2, 0, 1)[None] / 255)
    best = F.linear(features, weights["_fc.weight"], weights["_fc.bias"]).softmax(dim=1).topk(3)
    assert set(best.indices[0].tolist()) & expected, best
