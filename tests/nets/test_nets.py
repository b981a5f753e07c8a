"""Networks: published sizes, cosine logits, and random initial weights from one generator."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from worlds import CPU, cosine_head

from openworld.core.fields import options
from openworld.data import augment
from openworld.data.problem import statistics
from openworld.data.samples import InMemory
from openworld.nets.bodies import BODIES
from openworld.nets.heads import CosineHead
from openworld.nets.inference import inference_copy
from openworld.nets.network import Network, build_network
from openworld.ops.rng import generator


def noise(count: int = 10, size: int = 8) -> Tensor:
    """Return uint8 images whose channels have different statistics."""
    pixels = torch.rand(count, 3, size, size, generator=generator(0, "noise"))
    return (pixels * torch.tensor([255, 100, 30])[:, None, None]).to(torch.uint8)


def network_for(name: str, num_classes: int, images: Tensor, seed: int = 0) -> Network:
    shape, source = tuple(images.shape[1:]), generator(seed, "weights")
    return build_network(name, shape, *statistics(InMemory(images, CPU)), cosine_head(num_classes), source)


def small_network(seed: int = 0) -> Network:
    return network_for("small", 7, noise(), seed)


@pytest.mark.parametrize(
    ("name", "num_classes", "expected"),
    [("resnet18-cifar", 10, 11_173_962), ("resnet18", 1000, 11_689_512), ("resnet50", 1000, 25_557_032)],
)
def test_parameters_of_the_published_networks(name, num_classes, expected):
    with torch.device("meta"):
        body = BODIES[name]((3, 32, 32))
    linear_layer = body.num_features * num_classes + num_classes
    assert sum(weights.numel() for weights in body.parameters()) + linear_layer == expected


@pytest.mark.parametrize(
    ("name", "size", "last_map", "num_features"),
    [
        ("small", 8, 4, 64),
        ("resnet18-cifar", 32, 4, 512),
        ("resnet50-cifar", 32, 4, 2048),
        ("resnet18-tiny", 64, 4, 512),
        ("resnet50-tiny", 64, 4, 2048),
        ("resnet18", 224, 7, 512),
        ("resnet50", 224, 7, 2048),
    ],
)
def test_sizes_of_the_last_map_and_of_the_features(name, size, last_map, num_features):
    with torch.device("meta"):
        body, images = BODIES[name]((3, size, size)), torch.empty(2, 3, size, size)
        assert body.blocks(body.stem(images)).shape == (2, num_features, last_map, last_map)
        assert body(images).shape == (2, num_features)


@pytest.mark.parametrize(("name", "size"), [("small", 8), ("resnet18-cifar", 32), ("resnet18-tiny", 64)])
def test_logits_are_cosines(name, size):
    images = noise(4, size)
    logits = network_for(name, 7, images)(images / 255)
    assert logits.shape == (4, 7)
    assert logits.abs().max() <= 1 + 1e-6
    assert logits.std() > 0.01


def test_logits_by_hand():
    head = CosineHead(2, 3)
    head.load_state_dict({"weight": torch.tensor([[2.0, 0.0], [0.0, 0.5], [-3.0, -4.0]])})
    torch.testing.assert_close(head(torch.tensor([[0.0, 9.0]])), torch.tensor([[0.0, 1.0, -0.8]]))


def test_logits_do_not_depend_on_the_lengths_of_features_and_weights():
    head, features = small_network().head, torch.randn(5, 64, generator=generator(0, "features"))
    before = head(features)
    torch.testing.assert_close(head(features * 30), before)
    head.weight.data *= torch.linspace(0.1, 10, 7)[:, None]
    torch.testing.assert_close(head(features), before)
    head.normalise()
    torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(7))
    torch.testing.assert_close(head(features), before)


def test_weights_come_from_the_generator_alone():
    torch.manual_seed(1)
    first = small_network().state_dict()
    torch.manual_seed(2)
    second, other = small_network().state_dict(), small_network(seed=1).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    matrices_and_kernels = [name for name in first if first[name].dim() in (2, 4)]
    assert not any(torch.equal(first[name], other[name]) for name in matrices_and_kernels)


def test_channel_statistics_against_numpy():
    images = noise()
    pixels = images.numpy() / 255
    mean, std = statistics(InMemory(images, CPU))
    np.testing.assert_allclose(mean, pixels.mean(axis=(0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(std, pixels.std(axis=(0, 2, 3)), rtol=1e-5)


def test_features_of_any_scale_keep_their_scale_and_constant_ones_do_no_harm():
    features = torch.randn(50, 3, generator=generator(0, "features")) * torch.tensor([1e-5, 1.0, 1e5])
    features = torch.cat([features, torch.full((50, 1), 7.0)], dim=1)
    mean, std = statistics(InMemory(features, CPU))
    torch.testing.assert_close(std[:3], features[:, :3].std(dim=0, unbiased=False), rtol=1e-3, atol=0)
    assert std[3] == 1
    assert mean[3] == 7


def test_normalisation_is_inside_the_network():
    network, images = small_network().eval(), noise() / 255
    pixels = images.numpy()
    mean, std = pixels.mean(axis=(0, 2, 3), keepdims=True), pixels.std(axis=(0, 2, 3), keepdims=True)
    features = network.body(torch.from_numpy((pixels - mean) / std))
    expected = F.normalize(features) @ F.normalize(network.head.weight).T
    torch.testing.assert_close(network(images), expected, atol=1e-4, rtol=0)


def test_images_of_one_colour_do_not_break_the_network():
    grey = torch.full((4, 1, 8, 8), 128, dtype=torch.uint8)
    assert network_for("small", 3, grey)(grey / 255).isfinite().all()


def test_every_network_and_family_can_be_chosen_and_no_other():
    choices = {option.name: option.choices for option in options()}
    assert set(choices["network"]) == set(BODIES)
    assert set(choices["augment"]) == set(augment.FAMILIES)


# The inference copy of a network -----------------------------------------------------------------------------

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
every_kind = pytest.mark.parametrize(
    ("name", "size"),
    [("small", 8), ("small-64", 32), ("resnet18-cifar", 16), ("resnet50-tiny", 32), ("mlp", 0)],
)


def samples_for(name: str, size: int) -> Tensor:
    """Return samples that differ in colour too: plain noise images all look the same to a deep network."""
    source = generator(0, "samples")
    if name == "mlp":
        return torch.randn(10, 12, generator=source) * torch.arange(1.0, 13)
    return noise(size=size) / 255 * torch.rand(10, 3, 1, 1, generator=source)


def seasoned_network(name: str, samples: Tensor) -> Network:
    """Return a network like a trained one: all BatchNorm weights, biases and statistics differ from their defaults."""
    stored = samples if name == "mlp" else (samples * 255).to(torch.uint8)
    network, source = network_for(name, 7, stored), generator(0, "norms")
    for norm in (module for module in network.modules() if isinstance(module, NORMS)):
        nn.init.uniform_(norm.weight, -1.5, 1.5, generator=source)
        nn.init.uniform_(norm.bias, -0.5, 0.5, generator=source)
        norm.momentum = 1.0
    with torch.no_grad():
        network.train()(samples[:5])  # on some samples only: with all, both modes would give the same outputs
    return network


@pytest.mark.slow
@every_kind
def test_a_frozen_network_answers_as_the_network_in_evaluation_mode(name, size):
    samples = samples_for(name, size)
    network = seasoned_network(name, samples)
    answers = inference_copy(network.train())(samples)
    with torch.no_grad():
        expected, in_training = network.eval()(samples), network.train()(samples)
    torch.testing.assert_close(answers, expected, atol=1e-5, rtol=0)
    assert (expected - in_training).abs().max() > 0.01  # or either mode would pass
    assert expected.std(dim=0).min() > 1e-3  # or one answer would do for all


@every_kind
def test_a_frozen_network_has_no_convolution_with_batchnorm_and_nothing_to_learn(name, size):
    answering = inference_copy(seasoned_network(name, samples_for(name, size)))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in answering.modules())
    assert not any(isinstance(module, NORMS) for module in answering.modules()) or name == "mlp"
    assert not answering.training
    assert not any(parameter.requires_grad for parameter in answering.parameters())


@every_kind
@pytest.mark.parametrize("training", [True, False])
def test_the_network_that_is_frozen_stays_as_it_was(name, size, training):
    samples = samples_for(name, size)
    network = seasoned_network(name, samples).train(training)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    answering = inference_copy(network)
    for tensor in answering.state_dict().values():  # the two share no memory
        tensor.zero_()
    after = network.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert all(module.training == training for module in network.modules())
    assert all(parameter.requires_grad for parameter in network.parameters())
