"""Towards Realistic Semi-Supervised Learning (Rizve, Kardan, Shah, ECCV 2022): the paper's Algorithm 1.

Where the paper and the authors' released code differ, this module follows the code in three points: the cosine head,
Sinkhorn on cosines / epsilon, and the standard deviation over views. It follows the paper (Section 3.1) in two: the
prior of the unlabelled set, and the order of its novel part. Our additions are in trssl_plus.py.

Symbols of the paper: T is `temperature`, U_U is `temperature_U`, rho is `prior`, lambda is `epsilon`, and gamma of
mixup is `mixup_alpha`.

Shapes: L labelled rows, U unlabelled samples, V = 2 views of each, K classes (seen first, then novel).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openworld.core.config import Config
from openworld.data.batches import Batch, Batches
from openworld.data.prior import ESTIMATED
from openworld.data.problem import TrainingSet
from openworld.methods.base import Method, StepResult
from openworld.nets.network import Network
from openworld.ops.losses import soft_cross_entropy
from openworld.ops.mix import draw_partners, draw_weight, mixup
from openworld.ops.sinkhorn import marginal_error, marginals, moved_prior, order_prior, sinkhorn, with_floor
from openworld.ops.uncertainty import measure_uncertainty, temperatures

ESTIMATE_FROM, TRUST_OF_LABELS = 0.35, 0.5
"""Fraction of the run after which the prior is estimated, and how far pseudo-labels follow it from then on. Earlier, or
trusted less, it loses classes that the network has not found yet (docs/findings.md#finding-estimated-prior)."""


class Trssl(Method):
    """One classifier for seen and novel classes, trained on labels and class-distribution-aware pseudo-labels."""

    def __init__(self, config: Config, data: TrainingSet):
        super().__init__(config, data)
        self.options, self.temperature = config.options, config.answers.temperature
        self.num_seen = data.num_seen
        self.register_buffer("prior", data.prior.clone())
        self.estimates_prior = data.estimates_prior
        if self.estimates_prior:
            self.register_buffer("possible", (data.prior > 0).to(data.prior), persistent=False)
            self.register_buffer("trust", torch.ones((), device=data.device))
        else:
            self.trust = 1.0
        initial_U = torch.full((len(data.unlabelled),), self.temperature, device=data.device)
        self.register_buffer("temperature_U", initial_U)  # line 2 of Algorithm 1

    def assume(self, proportions_K: Tensor) -> None:
        self.prior.copy_(self.among_possible(with_floor(proportions_K)) if self.estimates_prior else proportions_K)

    def among_possible(self, prior_K: Tensor) -> Tensor:
        """Return the prior without classes that are known to be absent: the seen ones in novel class discovery."""
        return prior_K * self.possible / (prior_K * self.possible).sum()

    def draw(self, rows: int, step: int) -> tuple[Tensor, ...]:
        """Return mixup's weight, and each row's partner."""
        seed = self.config.seed
        return draw_weight(self.options.mixup_alpha, seed, step), draw_partners(rows, seed, step)

    def loss(self, network: Network, batch: Batch, weight: Tensor, partners: Tensor) -> StepResult:
        """Compute the loss of lines 4 to 10 of Algorithm 1. The library samples the batch and updates the weights."""
        with torch.no_grad():  # lines 6 and 7
            pseudo_labels, logs = self.pseudo_labels(self.view_logits(network, batch))
        rows = self.rows(batch, batch.views, pseudo_labels)  # line 8
        images, targets, temperature = self.apply_mixup(rows, weight, partners)  # line 9
        loss = soft_cross_entropy(network(images) / temperature[:, None], targets)  # line 10
        return StepResult(loss, {**logs, "temperature": self.temperature_U[batch.index].mean()})

    def view_logits(self, network: Network, batch: Batch) -> Tensor:
        """Return the logits of both views, (2, U, K).

        If BatchNorm normalises groups of rows, each view is passed on its own, as in the authors' code.
        """
        if network.norm_rows and len(batch.index) > 1:
            return torch.stack([network(view) for view in batch.unlabelled_views])
        return torch.stack(network(batch.views).chunk(2))

    def pseudo_labels(self, logits_VUK: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the targets of both views of the unlabelled samples, (2U, K), from their logits (lines 6 and 7)."""
        assigned = [self.assign(logits_UK) for logits_UK in logits_VUK]
        soft_VUK, errors_V = map(torch.stack, zip(*assigned, strict=True))
        return self.cross_and_harden(soft_VUK, errors_V)

    def assign(self, logits_BK: Tensor, weights_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return pseudo-labels whose class proportions follow the prior, and how far they miss it (line 6, Sinkhorn).

        `weights_B` are the weights of the rows. By default all rows count the same.
        """
        predicted_K = marginals((logits_BK / self.temperature).softmax(dim=1), weights_B)
        prior_K = order_prior(self.prior, predicted_K, self.num_seen)
        epsilon, iterations = self.options.epsilon, self.options.iterations
        targets_BK = sinkhorn(logits_BK, prior_K, epsilon, iterations, weights_B, self.trust)
        return targets_BK, marginal_error(targets_BK, prior_K, weights_B)

    def cross_and_harden(self, soft_VUK: Tensor, errors_V: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Give each view the pseudo-labels of the other view (line 6), and harden confident novel ones (line 7)."""
        if self.options.cross_labels:
            soft_VUK = soft_VUK.flip(0)
        targets = soft_VUK.expand(2, -1, -1).flatten(0, 1)
        hard = torch.zeros_like(targets[:, 0], dtype=torch.bool)
        if self.options.mixed_labels:
            targets, hard = harden_novel(targets, self.num_seen, self.options.threshold)
        return targets, {"hard_share": hard.float().mean(), "marginal_error": errors_V.mean()}

    def rows(self, batch: Batch, views: Tensor, pseudo_labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return images, targets and temperatures: labelled samples, then both views of unlabelled ones (line 8)."""
        labels_LK = F.one_hot(batch.labels, len(self.prior)).float()
        temperature_L = torch.full(batch.labels.shape, self.temperature, device=labels_LK.device)
        temperature_U = self.temperature_U[batch.index]
        images, targets = torch.cat([batch.labelled, views]), torch.cat([labels_LK, pseudo_labels])
        return images, targets, torch.cat([temperature_L, temperature_U, temperature_U])

    def apply_mixup(self, rows: tuple[Tensor, ...], weight: Tensor, partners: Tensor) -> tuple[Tensor, ...]:
        """Mix images, targets and temperatures of each row with those of its partner (line 9)."""
        return mixup(*rows, weight=weight, partners=partners) if self.options.mixup else rows

    @classmethod
    def passes(cls, config: Config) -> float:
        options = config.options
        for_prior = (1 - ESTIMATE_FROM) * (config.problem.prior == ESTIMATED)
        return for_prior + options.uncertainty * (1 - options.uncertainty_from) * config.answers.uncertainty_views

    @torch.no_grad()
    def end_epoch(self, average: Network, batches: Batches, step: int) -> None:
        """Set the temperatures of the unlabelled samples by their uncertainty (line 12), and estimate the prior."""
        if self.estimates_prior and step >= ESTIMATE_FROM * self.config.training.steps:
            self.trust.fill_(TRUST_OF_LABELS)
            predicted_K = predicted_proportions(average, batches.data, self.temperature)
            self.prior.copy_(self.among_possible(moved_prior(self.prior, predicted_K, self.num_seen)))
        first_step = self.options.uncertainty_from * self.config.training.steps
        if self.options.uncertainty and step >= first_step:
            chunks = batches.data.unlabelled.chunks(batches.rows_at_once)
            random_logits = batches.view_predictor(average, "uncertainty", step)
            uncertainty_U = measure_uncertainty(random_logits, chunks, self.config.answers.uncertainty_views)
            self.temperature_U.copy_(temperatures(uncertainty_U, self.temperature))

    def facts(self) -> dict[str, Any]:
        return {"prior": self.prior.tolist()} if self.estimates_prior else {}


@torch.no_grad()
def predicted_proportions(network: Network, data: TrainingSet, temperature: float) -> Tensor:
    """Return the (K,) mean probabilities of the classes over the unlabelled samples, without augmentation."""
    chunks = (network(data.family.plain(samples)) for samples in data.unlabelled.chunks())
    return sum((logits / temperature).softmax(dim=1).sum(dim=0) for logits in chunks) / len(data.unlabelled)


def harden_novel(targets_BK: Tensor, num_seen: int, threshold: float) -> tuple[Tensor, Tensor]:
    """Return mixed pseudo-labels, and which rows became hard (line 7, MixedPL).

    A row in which a novel class has at least the threshold becomes one-hot for that class. The other rows stay soft.

    >>> harden_novel(torch.tensor([[0.1, 0.7, 0.2], [0.7, 0.2, 0.1]]), num_seen=1, threshold=0.5)
    (tensor([[0.0000, 1.0000, 0.0000],
            [0.7000, 0.2000, 0.1000]]), tensor([ True, False]))
    """
    num_classes = targets_BK.shape[1]
    if num_classes == num_seen:
        return targets_BK, torch.zeros(len(targets_BK), dtype=torch.bool, device=targets_BK.device)
    probability_B, novel_B = targets_BK[:, num_seen:].max(dim=1)
    hard_B = probability_B >= threshold
    one_hot_BK = F.one_hot(num_seen + novel_B, num_classes).to(targets_BK.dtype)
    return torch.where(hard_B[:, None], one_hot_BK, targets_BK), hard_B
