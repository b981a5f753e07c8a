"""Towards Realistic Semi-Supervised Learning (Rizve, Kardan, Shah, ECCV 2022): the paper's Algorithm 1.

Where the paper and its authors' released code differ, this follows: the cosine head, Sinkhorn on cosines /
epsilon, the standard deviation over views (the code); the prior of the unlabelled set and the order of its
novel part (the paper, Section 3.1). Beyond both, and off by default: a queue for Sinkhorn, one pseudo-label for both
views, a stronger second view to train on, and logits that make up for the share of labelled rows.

Shapes: L labelled rows, U unlabelled samples, V logits of each (of its two views, or one for both), Q earlier ones, K
classes (seen first, then novel).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from openworld.config import Config, Training
from openworld.data.augment import draw_to_strengthen, strengthen
from openworld.data.batches import Batch, Batches
from openworld.data.problem import TrainingSet
from openworld.errors import UserError
from openworld.losses import soft_cross_entropy
from openworld.methods.base import Method, StepResult
from openworld.mix import draw_partners, draw_weight, mixup
from openworld.nets import Network
from openworld.rng import generator
from openworld.sinkhorn import marginal_error, marginals, order_prior, sinkhorn
from openworld.uncertainty import measure_uncertainty, temperatures


class Trssl(Method):
    """One classifier over seen and novel classes, taught by labels and by class-distribution-aware pseudo-labels."""

    num_views = 2

    def __init__(self, config: Config, data: TrainingSet):
        super().__init__(config, data)
        self.options, self.seed = config.trssl, config.seed
        self.num_seen, self.num_unlabelled = data.num_seen, config.training.batch_unlabelled
        if self.options.strong_views and len(data.unlabelled.shape) == 1:
            raise UserError("--strong-views: there are none of features, whose meaning is not known")
        self.first_uncertain_step = config.trssl.uncertainty_from * config.training.steps
        steps_to_fill = self.options.queue / config.training.batch_unlabelled
        self.first_queued_step = max(config.trssl.queue_from * config.training.steps, steps_to_fill)
        self.register_buffer("prior", data.prior.clone())
        initial = torch.full((len(data.unlabelled),), self.options.temperature, device=data.device)
        self.register_buffer("temperature_U", initial)  # line 2 of Algorithm 1
        num_labels = 1 if self.options.shared_labels else 2  # of the two views of a sample
        self.register_buffer("queue", torch.zeros(num_labels, self.options.queue, len(data.prior), device=data.device))
        self.register_buffer("log_excess", excess_of_rows(data, config.training).log(), persistent=False)

    def draw(self, rows: int, step: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mixup's weight and partners; what a row of the queue counts, 0 or 1; how second views are strengthened."""
        weight = draw_weight(self.options.mixup_alpha, self.seed, step)
        strengthened = self.num_unlabelled if self.options.strong_views else 0
        numbers = draw_to_strengthen(strengthened, generator(self.seed, "strengthen", step))
        is_queued = torch.tensor(float(step >= self.first_queued_step))
        return weight, draw_partners(rows, self.seed, step), is_queued, numbers

    def loss(
        self, network: Network, batch: Batch, weight: Tensor, partners: Tensor, queue_weight: Tensor, numbers: Tensor
    ) -> StepResult:
        """Lines 4 to 10 of Algorithm 1."""
        with torch.no_grad():
            pseudo_labels, logs = self.pseudo_labels(network(batch.views), queue_weight)
            views = batch.views
            if self.options.strong_views:  # the first one stays, or a plain look would speak for a seen class
                first, second = views.chunk(2)
                views = torch.cat([first, strengthen(second, numbers)])
        images, targets, temperature = self.rows(batch, views, pseudo_labels)
        if self.options.mixup:
            images, targets, temperature = mixup(images, targets, temperature, weight=weight, partners=partners)
        logits = network(images) / temperature[:, None]
        if self.options.balance:
            logits = logits + self.log_excess
        loss = soft_cross_entropy(logits, targets)
        return StepResult(loss, {**logs, "temperature": self.temperature_U[batch.index].mean()})

    def pseudo_labels(self, logits: Tensor, queue_weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """(2 * U, K) targets for both views of the unlabelled samples, from the logits of both."""
        options, logits_VUK = self.options, torch.stack(logits.chunk(2))
        if options.shared_labels:
            logits_VUK = logits_VUK.mean(dim=0, keepdim=True)
        of_views = zip(logits_VUK, self.queue, strict=True)
        assigned = [self.assign(logits_UK, queue_QK, queue_weight) for logits_UK, queue_QK in of_views]
        soft_VUK, errors_V = map(torch.stack, zip(*assigned, strict=True))
        self.queue.copy_(torch.cat([self.queue, logits_VUK], dim=1)[:, logits_VUK.shape[1] :])
        if options.cross_labels:  # each view is labelled by the other
            soft_VUK = soft_VUK.flip(0)
        targets = soft_VUK.expand(2, -1, -1).flatten(0, 1)
        hard = torch.zeros_like(targets[:, 0], dtype=torch.bool)
        if options.mixed_labels:
            targets, hard = harden_novel(targets, self.num_seen, options.threshold)
        return targets, {"hard_share": hard.float().mean(), "marginal_error": errors_V.mean()}

    def rows(self, batch: Batch, views: Tensor, pseudo_labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Images, targets and temperatures: of the labelled samples, then of both views of the unlabelled ones."""
        labels = F.one_hot(batch.labels, len(self.prior)).float()
        fixed = torch.full(batch.labels.shape, self.options.temperature, device=labels.device)
        measured = self.temperature_U[batch.index]
        images, targets = torch.cat([batch.labelled, views]), torch.cat([labels, pseudo_labels])
        return images, targets, torch.cat([fixed, measured, measured])

    def assign(self, logits_UK: Tensor, queue_QK: Tensor, queue_weight: Tensor) -> tuple[Tensor, Tensor]:
        """Pseudo-labels whose class shares follow the prior, and by how much they miss it.

        Earlier logits, which are assigned together with the batch's own, make the shares those of more samples.
        """
        options = self.options
        logits_BK = torch.cat([queue_QK, logits_UK])
        weights_B = torch.cat([queue_weight.expand(len(queue_QK)), torch.ones_like(logits_UK[:, 0])])
        predicted_K = marginals((logits_BK / options.temperature).softmax(dim=1), weights_B)
        prior_K = order_prior(self.prior, predicted_K, self.num_seen)
        targets_BK = sinkhorn(logits_BK, prior_K, options.epsilon, options.iterations, weights_B)
        return targets_BK[len(queue_QK) :], marginal_error(targets_BK, prior_K, weights_B)

    def end_epoch(self, average: Network, batches: Batches, step: int) -> None:
        """Line 12: the temperatures of the unlabelled samples follow their uncertainty."""
        if self.options.uncertainty and step >= self.first_uncertain_step:
            chunks = batches.data.unlabelled.chunks(batches.rows)
            answers = batches.answers(average, "uncertainty", step)
            uncertainty_U = measure_uncertainty(answers, chunks, self.options.uncertainty_views)
            self.temperature_U.copy_(temperatures(uncertainty_U, self.options.temperature))


def harden_novel(targets_BK: Tensor, num_seen: int, threshold: float) -> tuple[Tensor, Tensor]:
    """Mixed pseudo-labels: a row that gives a novel class at least the threshold becomes that class.

    The other rows stay soft. Also says which rows were hardened.

    >>> harden_novel(torch.tensor([[0.1, 0.7, 0.2], [0.7, 0.2, 0.1]]), num_seen=1, threshold=0.5)
    (tensor([[0.0000, 1.0000, 0.0000],
            [0.7000, 0.2000, 0.1000]]), tensor([ True, False]))
    """
    num_classes = targets_BK.shape[1]
    if num_classes == num_seen:
        return targets_BK, torch.zeros(len(targets_BK), dtype=torch.bool, device=targets_BK.device)
    share_B, novel_B = targets_BK[:, num_seen:].max(dim=1)
    hard_B = share_B >= threshold
    one_hot_BK = F.one_hot(num_seen + novel_B, num_classes).to(targets_BK.dtype)
    return torch.where(hard_B[:, None], one_hot_BK, targets_BK), hard_B


def excess_of_rows(data: TrainingSet, training: Training) -> Tensor:
    """(K,) how many times as often each class is met in a batch as it is among all samples.

    Its logarithm, added to the logits in the loss alone, keeps a network from favouring what it meets most (Menon et
    al., Long-tail learning via logit adjustment, ICLR 2021).
    """
    labelled_K = torch.bincount(data.labels, minlength=data.num_classes).to(data.prior)
    met_K = training.batch_labelled * labelled_K / labelled_K.sum() + 2 * training.batch_unlabelled * data.prior
    there_K = labelled_K + len(data.unlabelled) * data.prior
    excess_K = (met_K / met_K.sum()) / (there_K / there_K.sum())
    return torch.where(there_K > 0, excess_K, 1.0)  # what is nowhere, is not met
