import dataclasses

import numpy as np
import pytest
import torch
from worlds import RUNTIME, cosine_head, run

from openworld.core.config import Training
from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.data.batches import Batch, Batches, Views
from openworld.data.problem import load_problem
from openworld.methods.base import StepResult
from openworld.methods.trssl import Trssl, harden_novel
from openworld.methods.trssl_options import TrsslOptions
from openworld.methods.trssl_plus import TrsslPlus, excess_of_rows
from openworld.methods.trssl_plus_options import TrsslPlusOptions
from openworld.nets.network import Network, build_network
from openworld.ops.mix import draw_partners, draw_weight
from openworld.ops.rng import generator

STEP = 3
PLUS = {"method": "trssl+"}
SMALL = replace(digits("digits"), {"batch_labelled": 8, "batch_unlabelled": 32, "iterations": 3})


@pytest.fixture(scope="module")
def data():
    return load_problem(SMALL, RUNTIME).training


def step_of(data, **switches):
    """Return a method, a network and a batch. Weights and images are the same for all `switches`."""
    config = replace(SMALL, switches)
    weights, build_head = generator(1, "weights"), cosine_head(data.num_classes)
    network = build_network("small", data.shown_shape, data.mean, data.std, build_head, weights).train()
    return config.options.method()(config, data), network, Batches(data, config.training, config.seed, Views()).at(STEP)


def result_of(method: Trssl, network: Network, batch: Batch) -> StepResult:
    rows = len(batch.labelled) + len(batch.views)
    return method.loss(network, batch, *method.draw(rows, STEP))


def test_a_step_is_algorithm_1_written_out_with_numpy(data):
    """Compare the loss with a slow float64 reference: exponential form, loops over rows, none of our helpers."""
    method, network, batch = step_of(data)
    method.temperature_U.copy_(torch.linspace(0.1, 1, len(method.temperature_U)))
    loss = result_of(method, network, batch).loss.item()

    _, network, _ = step_of(data)  # a fresh network: the step above moved BatchNorm's running statistics
    with torch.no_grad():
        logits = network(batch.views).double().numpy()
    first, second = logits[:32], logits[32:]

    def pseudo_labels(logits):
        predicted = np.exp(logits / 0.1) / np.exp(logits / 0.1).sum(axis=1, keepdims=True)
        prior = data.prior.double().numpy().copy()
        shares = sorted(prior[5:])  # the smallest novel proportion goes to the least predicted novel class
        for share, novel in zip(shares, predicted.mean(axis=0)[5:].argsort(), strict=True):
            prior[5 + novel] = share
        q = np.exp(logits / 0.05)
        for _ in range(3):
            q = q / q.sum(axis=0) * prior
            q = q / q.sum(axis=1, keepdims=True)
        for row in q:
            if row[5:].max() >= 0.5:
                row[:] = np.arange(10) == 5 + row[5:].argmax()
        return q

    targets = np.concatenate([np.eye(10)[batch.labels.numpy()], pseudo_labels(second), pseudo_labels(first)])
    measured = method.temperature_U[batch.index].double().numpy()
    temperature = np.concatenate([np.full(8, 0.1), measured, measured])
    images = torch.cat([batch.labelled, batch.views])
    weight = draw_weight(0.75, SMALL.seed, STEP).item()
    partners = draw_partners(72, SMALL.seed, STEP)
    with torch.no_grad():
        mixed_logits = network(weight * images + (1 - weight) * images[partners]).double().numpy()
    targets = weight * targets + (1 - weight) * targets[partners.numpy()]
    temperature = weight * temperature + (1 - weight) * temperature[partners.numpy()]
    scaled = mixed_logits / temperature[:, None]
    log_shares = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    assert loss == pytest.approx(-(targets * log_shares).sum(axis=1).mean(), rel=1e-4)


OF_THE_PAPER = {
    "mixed_labels": False,
    "cross_labels": False,
    "mixup": False,
    "temperature": 0.2,
    "threshold": 0.9,
    "epsilon": 0.5,
    "iterations": 1,
    "mixup_alpha": 5.0,
}
BEYOND_IT = {"shared_labels": True, "strong_views": True, "balance": True}
CHANGES = [
    *(("trssl", name, value) for name, value in OF_THE_PAPER.items()),
    *(("trssl+", name, value) for name, value in {**OF_THE_PAPER, **BEYOND_IT}.items()),
]


@pytest.mark.parametrize(("method", "name", "value"), CHANGES)
def test_every_part_that_the_paper_ablates_changes_the_loss(data, method, name, value):
    losses = []
    for switches in ({}, {name: value}):
        made, network, batch = step_of(data, method=method, **switches)
        losses.append(result_of(made, network, batch).loss.item())
    assert abs(losses[0] - losses[1]) > 1e-4


def test_the_options_not_tested_above_are_those_of_the_uncertainty_and_the_queue():
    of_paper, of_plus = (
        {field.name for field in dataclasses.fields(kind)} for kind in (TrsslOptions, TrsslPlusOptions)
    )
    assert of_paper - set(OF_THE_PAPER) == {"uncertainty", "uncertainty_from"}
    assert of_plus - of_paper - set(BEYOND_IT) == {"queue", "queue_from"}
    assert set(OF_THE_PAPER) - of_paper == {"temperature"}  # of all answers


def test_with_all_that_we_added_off_the_loss_is_the_papers(data):
    (method, network, batch), (plus, same_network, same_batch) = step_of(data), step_of(data, **PLUS)
    assert (type(method), type(plus)) == (Trssl, TrsslPlus)
    ours, theirs = result_of(plus, same_network, same_batch), result_of(method, network, batch)
    assert ours.loss == theirs.loss
    assert ours.logs == theirs.logs


def logits_of(number: int) -> torch.Tensor:
    """Return logits of two views of 32 samples."""
    return torch.rand(64, 10, generator=generator(number, "logits")).view(2, 32, 10)


def test_a_shared_label_is_that_of_the_mean_of_both_views(data):
    logits = logits_of(0)
    mean = (logits[0] + logits[1]) / 2
    method, _, _ = step_of(data, **PLUS, shared_labels=True)
    labels, _ = method.pseudo_labels(logits, torch.tensor(0.0))
    expected, _ = step_of(data)[0].pseudo_labels(torch.stack([mean, mean]))
    assert torch.equal(labels, expected)
    assert torch.equal(labels[:32], labels[32:])
    assert not torch.equal(labels, step_of(data)[0].pseudo_labels(logits)[0])


def test_labels_that_are_shared_cannot_be_crossed_or_not(refused):
    told = refused("train", "--recipe", "pretrained", "--no-cross-labels", "--steps", 2, "--device", "cpu", "--quiet")
    assert "--cross-labels" in told
    assert "--shared-labels" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("idle", "off", "told"),
    [
        (["--threshold", 0.7], ["--no-mixed-labels"], "--threshold works only with --mixed-labels"),
        (["--queue-from", 0.5], ["--queue", 0], "--queue-from works only with --queue"),
        (["--mixup-alpha", 1], ["--no-mixup"], "--mixup-alpha works only with --mixup"),
        (["--uncertainty-from", 0.7], ["--no-uncertainty"], "--uncertainty-from works only with --uncertainty"),
    ],
)
def test_an_option_of_what_is_off_is_refused(refused, idle, off, told):
    short = ["--steps", 1, "--epoch-steps", 1, "--start", "simclr", "--start-steps", 1, "--device", "cpu", "--quiet"]
    short += ["--method", "trssl+"] if "--queue" in off else []
    assert told in refused("train", *short, *idle, *off, "--out", "off")
    on = ["--queue", 16] if "--queue" in off else []
    assert run("train", *short, *idle, *on, "--out", "on") == 0


@pytest.mark.parametrize("added", [["--queue", 16], ["--queue-from", 0.5], ["--balance"], ["--strong-views"]])
def test_what_we_added_to_the_paper_is_refused_without_its_method(refused, added):
    told = refused("train", "--steps", 1, "--device", "cpu", "--quiet", *added)
    assert f" {added[0]} " in told
    assert "--method trssl+" in told
    assert f"leave {added[0]} out" in told


def test_the_queue_holds_the_latest_logits_of_each_view(data):
    method, _, _ = step_of(data, **PLUS, queue=80)
    for number in range(4):
        method.pseudo_labels(logits_of(number), torch.tensor(1.0))
    first, second = (torch.cat([logits_of(number)[view] for number in (1, 2, 3)])[-80:] for view in (0, 1))
    assert torch.equal(method.queue, torch.stack([first, second]))
    shared, _, _ = step_of(data, **PLUS, queue=80, shared_labels=True)
    for number in range(4):
        shared.pseudo_labels(logits_of(number), torch.tensor(1.0))
    assert torch.equal(shared.queue, (first + second)[None] / 2)


def test_a_batch_is_assigned_together_with_the_queue_from_its_step_on(data):
    switches = {**PLUS, "queue": 32, "queue_from": 0.5, "steps": 10, "mixed_labels": False, "cross_labels": False}
    method, _, _ = step_of(data, **switches)
    plain, _, _ = step_of(data, **{**switches, "queue": 0})
    weights = [method.draw(72, step)[2] for step in (4, 5)]
    assert weights == [0.0, 1.0]
    earlier, later = logits_of(0), logits_of(1) + torch.linspace(-1, 1, 10)
    method.pseudo_labels(earlier, weights[0])
    alone, _ = plain.pseudo_labels(later, weights[1])
    torch.testing.assert_close(method.pseudo_labels(later, weights[0])[0], alone)
    method.queue.copy_(earlier)
    together, logs = method.pseudo_labels(later, weights[1])
    both, _ = plain.assign(torch.cat([earlier[0], later[0]]))
    torch.testing.assert_close(together[:32], both[32:])
    assert not torch.allclose(together, alone, atol=1e-2)
    assert logs["marginal_error"] < 0.2


def test_a_queue_that_is_not_full_yet_is_not_used(data):
    """Empty rows would fit any class and use up the prior of the rare classes."""
    method, _, _ = step_of(data, **PLUS, queue=80, queue_from=0.0, steps=10)  # 32 samples a step
    assert [float(method.draw(72, step)[2]) for step in range(4)] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("switched_on", "switches"),
    [
        (True, {"uncertainty_from": 0.0}),
        (True, {"uncertainty_from": 0.5}),
        (False, {"uncertainty_from": 0.51}),
        (False, {"uncertainty": False, "uncertainty_from": 0.0}),
    ],
)
def test_temperatures_follow_the_uncertainty_if_switched_on_and_from_its_step_on(data, switched_on, switches):
    method, network, _ = step_of(data, uncertainty_views=3, steps=10, **switches)
    method.end_epoch(network.eval(), Batches(data, SMALL.training, 0, Views()), step=5)
    measured = method.temperature_U
    assert measured.min() == pytest.approx(0.1)
    assert (measured.max() == 1.0) == switched_on
    assert (len(measured.unique()) > 100) == switched_on


def test_a_row_is_hardened_for_a_confident_novel_class_and_never_for_a_seen_one():
    rows = torch.tensor([[0.9, 0.0, 0.1], [0.3, 0.5, 0.2], [0.2, 0.41, 0.39], [0.0, 0.0, 1.0]])
    mixed, hard = harden_novel(rows, num_seen=1, threshold=0.5)
    assert hard.tolist() == [False, True, False, True]
    assert mixed.tolist() == [rows[0].tolist(), [0, 1, 0], rows[2].tolist(), [0, 0, 1]]


def test_without_novel_classes_nothing_is_hardened():
    rows = torch.tensor([[0.9, 0.1]])
    mixed, hard = harden_novel(rows, num_seen=2, threshold=0.5)
    assert torch.equal(mixed, rows)
    assert not hard.any()


def test_logs_are_shares(data):
    method, network, batch = step_of(data)
    logs = result_of(method, network, batch).logs
    assert set(logs) == {"hard_share", "temperature", "marginal_error"}
    assert all(0 <= value <= 1 for value in logs.values())


# Beyond the paper --------------------------------------------------------------------------------------------


def test_stronger_views_are_trained_on_with_the_labels_of_the_plain_ones(data, monkeypatch):
    def black(views: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        assert numbers.shape == (10, len(views))
        return torch.zeros_like(views)

    monkeypatch.setattr("openworld.methods.trssl_plus.strengthen", black)
    requested, trained = [], []

    class Watched(TrsslPlus):
        def pseudo_labels(self, logits, queue_weight):
            requested.append(logits)
            return super().pseudo_labels(logits, queue_weight)

        def rows(self, batch, views, pseudo_labels):
            trained.append((views, pseudo_labels))
            return super().rows(batch, views, pseudo_labels)

    for switches in ({}, {"strong_views": True}):
        method, network, batch = step_of(data, **PLUS, **switches)
        method.__class__ = Watched
        result_of(method, network, batch)
    assert torch.equal(*requested)
    (plain, labels), (strong, same_labels) = trained
    assert torch.equal(plain, batch.views)
    first, second = strong.chunk(2)
    assert torch.equal(first, batch.views.chunk(2)[0])
    assert not second.any()
    assert torch.equal(labels, same_labels)


def test_how_views_are_strengthened_hangs_on_the_step(data):
    method, _, _ = step_of(data, **PLUS, strong_views=True)
    first, again, other = (method.draw(72, step)[3] for step in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert step_of(data, **PLUS)[0].draw(72, 3)[3].numel() == 0


def test_there_are_no_stronger_views_of_features(refused, tmp_path):
    features = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    np.savez(tmp_path / "mine.npz", features=features, labels=np.arange(60) % 3 - 1)
    short = ("--method", "trssl+", "--steps", 2, "--device", "cpu", "--quiet")
    told = refused("train", tmp_path / "mine.npz", "--strong-views", *short)
    assert "--strong-views works only with images" in told


def test_the_excess_of_rows_is_how_often_a_class_is_met_over_how_often_it_is_there():
    """A batch has 10 labelled and 2 x 20 unlabelled rows, from 20 labelled and 180 unlabelled samples."""
    labelled, prior = torch.tensor([15.0, 5, 0, 0]), torch.tensor([0.25, 0.25, 0.5, 0.0])
    excess = excess_of_rows(Training(batch_labelled=10, batch_unlabelled=20), labelled, 180, prior)
    met = [7.5 + 10, 2.5 + 10, 20]
    there = [15 + 45, 5 + 45, 90]
    expected = [m / 50 / (t / 200) for m, t in zip(met, there, strict=True)]
    torch.testing.assert_close(excess, torch.tensor([*expected, 1.0]))


def test_balance_adds_the_logarithm_of_the_excess_to_the_logits_of_the_loss(data):
    """The prior is the one in use: that of clusters may take the place of the one that was assumed."""
    method, network, batch = step_of(data, **PLUS, balance=True, mixup=False)
    labelled, prior = torch.bincount(data.labels, minlength=data.num_classes).float(), torch.linspace(0.01, 0.19, 10)
    method.assume(prior)
    excess = excess_of_rows(SMALL.training, labelled, len(data.unlabelled), prior)
    assert excess[0] > 1 > excess[9]
    loss = result_of(method, network, batch).loss
    method, network, _ = step_of(data, mixup=False)
    method.assume(prior)
    with torch.no_grad():
        labels, _ = method.pseudo_labels(method.view_logits(network, batch))
        images, targets, temperature = method.rows(batch, batch.views, labels)
        logits = network(images) / temperature[:, None] + excess.log()
    torch.testing.assert_close(loss, -(targets * logits.log_softmax(dim=1)).sum(dim=1).mean())
