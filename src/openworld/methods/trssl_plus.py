"""Our additions to the paper's method. The recipes `fast` and `pretrained` use them.

Each addition has a switch: a queue of earlier logits for Sinkhorn, one pseudo-label for both views, a stronger second
view to train on, and logits that are corrected for the proportion of labelled rows. With all of them off, it is the
paper's method.

Shapes: as in trssl.py; V logits of each sample (2 for its two views, or 1 for both together), Q logits in the queue.
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
    """The paper's method with a queue, shared pseudo-labels, stronger views and balanced logits."""

    def __init__(self, config: Config, data: TrainingSet):
        super().__init__(config, data)
        if self.options.queue:
            shape_VQK = 1 if self.options.shared_labels else 2, self.options.queue, len(data.prior)
            self.register_buffer("queue", torch.zeros(shape_VQK, device=data.device))
        labelled_K = torch.bincount(data.labels, minlength=data.num_classes).to(data.prior)
        self.register_buffer("labelled_K", labelled_K, persistent=False)

    @classmethod
    def refuse(cls, config: Config, data: TrainingSet) -> None:
        if config.options.strong_views and not data.has_images:
            raise UserError(
                f"{named('strong_views')} works only with images, but this data contains features; turn it off"
            )

    def draw(self, rows: int, step: int) -> tuple[Tensor, ...]:
        """Also return the weight of a row in the queue, 0 or 1, and the random numbers of the stronger second views."""
        training = self.config.training
        steps_to_fill = self.options.queue / training.batch_unlabelled
        uses_queue = step >= max(self.options.queue_from * training.steps, steps_to_fill)
        num_strong_views = training.batch_unlabelled if self.options.strong_views else 0
        numbers = draw_to_strengthen(num_strong_views, generator(self.config.seed, "strengthen", step))
        return *super().draw(rows, step), torch.tensor(float(uses_queue)), numbers

    def loss(
        self, network: Network, batch: Batch, weight: Tensor, partners: Tensor, queue_weight: Tensor, numbers: Tensor
    ) -> StepResult:
        """Compute the paper's loss with those additions that are on."""
        with torch.no_grad():
            pseudo_labels, logs = self.pseudo_labels(self.view_logits(network, batch), queue_weight)
            views = batch.views
            if self.options.strong_views:
                # Only the second view: if all unlabelled views were strong, a plain image would indicate a seen class
                first, second = batch.unlabelled_views
                views = torch.cat([first, strengthen(second, numbers)])
        images, targets, temperature = self.apply_mixup(self.rows(batch, views, pseudo_labels), weight, partners)
        logits = network(images) / temperature[:, None]
        if self.options.balance:
            rows = self.config.training, self.labelled_K, len(self.temperature_U), self.prior
            logits = logits + excess_of_rows(*rows).log()
        loss = soft_cross_entropy(logits, targets)
        return StepResult(loss, {**logs, "temperature": self.temperature_U[batch.index].mean()})

    def pseudo_labels(self, logits_VUK: Tensor, queue_weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the targets as in the paper, from shared logits and with the queue if these are on."""
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
        return self.cross_and_harden(soft_VUK, errors_V)

    def assign_with_queue(self, logits_UK: Tensor, queue_QK: Tensor, queue_weight: Tensor) -> tuple[Tensor, Tensor]:
        """Assign the batch together with the queue, so that the class proportions are those of more samples."""
        logits_BK = torch.cat([queue_QK, logits_UK])
        weights_B = torch.cat([queue_weight.expand(len(queue_QK)), torch.ones_like(logits_UK[:, 0])])
        targets_BK, error = self.assign(logits_BK, weights_B)
        return targets_BK[len(queue_QK) :], error


def excess_of_rows(training: Training, labelled_K: Tensor, num_unlabelled: int, prior_K: Tensor) -> Tensor:
    """Return for each class, (K,), its proportion in a batch divided by its proportion among all samples.

    The loss, and only the loss, adds the logarithm to the logits. This keeps the network from favouring the classes
    that are most frequent in a batch (Menon et al., Long-tail learning via logit adjustment, ICLR 2021).

    Args:
        training: the numbers of rows of a batch.
        labelled_K: the number of labelled samples of each class.
        num_unlabelled: the number of unlabelled samples.
        prior_K: the proportion of each class among the unlabelled samples.
    """
    in_batch_K = training.batch_labelled * labelled_K / labelled_K.sum() + 2 * training.batch_unlabelled * prior_K
    in_data_K = labelled_K + num_unlabelled * prior_K
    excess_K = (in_batch_K / in_batch_K.sum()) / (in_data_K / in_data_K.sum())
    return torch.where(in_data_K > 0, excess_K, 1.0)  # a class without samples would give 0 / 0
