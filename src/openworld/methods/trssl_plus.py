"""What we added to the paper's method, each a switch: the recipes `fast` and `pretrained` use it.

A queue of earlier logits for Sinkhorn, one pseudo-label for both views, a stronger second view to train on, and logits
that make up for the share of labelled rows. With all of them off it is the paper's method.

Shapes: as in trssl.py; V logits of each sample (of its two views, or one for both), Q earlier ones.
"""

import torch
from torch import Tensor

from openworld.core.config import Config, Training
from openworld.core.errors import UserError, named
from openworld.data.augment import draw_to_strengthen, strengthen
from openworld.data.batches import Batch
from openworld.data.problem import TrainingSet
from openworld.methods.base import StepResult
from openworld.methods.trssl import Trssl
from openworld.nets.network import Network
from openworld.ops.losses import soft_cross_entropy
from openworld.ops.rng import generator


class TrsslPlus(Trssl):
    """The paper's method with labels from more logits, for stronger views, of balanced classes."""

    def __init__(self, config: Config, data: TrainingSet):
        super().__init__(config, data)
        if self.options.queue:
            of_each = 1 if self.options.shared_labels else 2
            self.register_buffer("queue", torch.zeros(of_each, self.options.queue, len(data.prior), device=data.device))
        self.register_buffer("log_excess", excess_of_rows(data, config.training).log(), persistent=False)

    @classmethod
    def refuse(cls, config: Config, data: TrainingSet) -> None:
        if config.options.strong_views and len(data.unlabelled.shape) == 1:
            raise UserError(f"{named('strong_views')}: there are none of features, whose meaning is not known")

    def draw(self, rows: int, step: int) -> tuple[Tensor, ...]:
        """Also what a row of the queue counts, 0 or 1; and how second views are strengthened."""
        training = self.config.training
        steps_to_fill = self.options.queue / training.batch_unlabelled
        is_queued = step >= max(self.options.queue_from * training.steps, steps_to_fill)
        strengthened = training.batch_unlabelled if self.options.strong_views else 0
        numbers = draw_to_strengthen(strengthened, generator(self.config.seed, "strengthen", step))
        return *super().draw(rows, step), torch.tensor(float(is_queued)), numbers

    def loss(
        self, network: Network, batch: Batch, weight: Tensor, partners: Tensor, queue_weight: Tensor, numbers: Tensor
    ) -> StepResult:
        with torch.no_grad():
            pseudo_labels, logs = self.pseudo_labels(self.view_logits(network, batch), queue_weight)
            views = batch.views
            if self.options.strong_views:  # the first one stays, or a plain look would speak for a seen class
                first, second = batch.unlabelled_views
                views = torch.cat([first, strengthen(second, numbers)])
        images, targets, temperature = self.mixed(self.rows(batch, views, pseudo_labels), weight, partners)
        logits = network(images) / temperature[:, None]
        if self.options.balance:
            logits = logits + self.log_excess
        loss = soft_cross_entropy(logits, targets)
        return StepResult(loss, {**logs, "temperature": self.temperature_U[batch.index].mean()})

    def pseudo_labels(self, logits_VUK: Tensor, queue_weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        if self.options.shared_labels:
            logits_VUK = logits_VUK.mean(dim=0, keepdim=True)
        if not self.options.queue:
            return super().pseudo_labels(logits_VUK)
        assigned = [
            self.assign_with_queue(logits_UK, queue_QK, queue_weight)
            for logits_UK, queue_QK in zip(logits_VUK, self.queue, strict=True)
        ]
        self.queue.copy_(torch.cat([self.queue, logits_VUK], dim=1)[:, logits_VUK.shape[1] :])
        soft_VUK, errors_V = map(torch.stack, zip(*assigned, strict=True))
        return self.settled(soft_VUK, errors_V)

    def assign_with_queue(self, logits_UK: Tensor, queue_QK: Tensor, queue_weight: Tensor) -> tuple[Tensor, Tensor]:
        """Earlier logits, assigned together with the batch's own, make the class shares those of more samples."""
        logits_BK = torch.cat([queue_QK, logits_UK])
        weights_B = torch.cat([queue_weight.expand(len(queue_QK)), torch.ones_like(logits_UK[:, 0])])
        targets_BK, error = self.assign(logits_BK, weights_B)
        return targets_BK[len(queue_QK) :], error


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
