"""Methods that openworld does not know, to test that training works with any method.

`Demanding` uses every option that a method has. `Clusters` is fitted once. `Prototypes` keeps its classes in a buffer.
`Bilevel` learns by a gradient through a gradient step. `Choosy` chooses one of its heads.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from openworld.data.batches import View, Views
from openworld.methods.base import Method, StepResult
from openworld.methods.options import MethodOptions
from openworld.nets.features import clustered_head
from openworld.nets.heads import CosineHead
from openworld.ops.rng import generator
from openworld.ops.schedule import Pace


@dataclass(frozen=True, kw_only=True)
class DemandingOptions(MethodOptions):
    """Uses a head of three parts, other views, a teacher, a frozen stem, and its own rates and schedule."""

    epsilon: float = 0.5
    """Weight of the agreement of the views."""

    @classmethod
    def method(cls):
        return Demanding


class DemandingHead(nn.Module):
    def __init__(self, width: int, num_classes: int, source: torch.Generator):
        super().__init__()
        self.classes = CosineHead.drawn(width, num_classes, source)
        self.turn = nn.Linear(width, 3, bias=False)
        nn.init.normal_(self.turn.weight, generator=source)
        self.register_buffer("shift", torch.zeros(num_classes))

    def forward(self, features: Tensor) -> Tensor:
        return self.classes(features) + self.shift


class Demanding(Method):
    uses_teacher, fitted, helpers = True, ("head.shift",), ("head.turn.",)

    @classmethod
    def build_head(cls, config, width, num_seen, num_classes, source):
        return DemandingHead(width, num_classes, source)

    @classmethod
    def views(cls, config):
        return Views((View(), View("cifar")), (View(), View(size=6), View("cifar", 0.875)))

    def pace(self, name):
        return None if name.startswith("body.stem.") else Pace(rate=0.5, decay=2.0 * ("norm" in name))

    def learning_rate(self, step, training):
        return training.lr * 0.9**step

    def draw(self, rows, step):
        return torch.tensor(1 / (1 + step)), torch.randperm(rows, generator=generator(self.config.seed, "mine", step))

    def loss(self, network, batch, share, order, teacher):
        with torch.no_grad():
            targets = (teacher(batch.unlabelled_views[0]) / 0.1).softmax(dim=1)
        seen = sum(F.cross_entropy(network(view) / 0.1, batch.labels) for view in batch.labelled_views)
        small = [network.features(view) for view in batch.unlabelled_views[1:]]
        agreement = sum(F.cross_entropy(network.head(features) / 0.1, targets) for features in small)
        turned = network.head.turn(small[0]).square().mean()
        loss = seen + self.config.options.epsilon * share * agreement + 1e-3 * turned
        return StepResult(loss, {"rows": order.max().float() + 1})

    @torch.no_grad()
    def end_epoch(self, average, batches, step):
        average.head.shift.copy_(0.01 * batches.data.prior.log())


@dataclass(frozen=True, kw_only=True)
class ClustersOptions(MethodOptions):
    """Clusters the features once and does not train them."""

    @classmethod
    def method(cls):
        return Clusters


class Clusters(Method):
    makes_steps, fitted = False, ("head.",)

    @torch.no_grad()
    def end_epoch(self, average, batches, step):
        average.head.weight.copy_(clustered_head(average, batches.data, generator(self.config.seed, "clusters")))


@dataclass(frozen=True, kw_only=True)
class PrototypesOptions(MethodOptions):
    """Keeps the running mean of the samples predicted as each class, in a buffer that the loss updates."""

    @classmethod
    def method(cls):
        return Prototypes


class PrototypesHead(nn.Module):
    def __init__(self, width: int, num_classes: int, source: torch.Generator):
        super().__init__()
        self.register_buffer("centres", torch.randn(num_classes, width, generator=source))

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features), F.normalize(self.centres))


class Prototypes(Method):
    @classmethod
    def build_head(cls, config, width, num_seen, num_classes, source):
        return PrototypesHead(width, num_classes, source)

    def loss(self, network, batch):
        features = network.features(torch.cat([batch.labelled, batch.views]))
        logits = network.head(features) / 0.1
        targets = torch.cat([batch.labels, logits[len(batch.labels) :].argmax(dim=1)])
        with torch.no_grad():
            one_hot = F.one_hot(targets, len(network.head.centres)).float()
            network.head.centres.lerp_(one_hot.T @ F.normalize(features), 0.1)
        return StepResult(F.cross_entropy(logits, targets))


@dataclass(frozen=True, kw_only=True)
class BilevelOptions(MethodOptions):
    """Weights samples by a network that learns how a step on them changes the labelled loss (as in DS3L, OpenLDN)."""

    @classmethod
    def method(cls):
        return Bilevel


class BilevelHead(nn.Module):
    def __init__(self, width: int, num_classes: int, source: torch.Generator):
        super().__init__()
        self.classes = CosineHead.drawn(width, num_classes, source)
        self.judge = nn.Linear(width, 1, bias=False)
        nn.init.normal_(self.judge.weight, std=0.1, generator=source)

    def forward(self, features: Tensor) -> Tensor:
        return self.classes(features)


class Bilevel(Method):
    helpers = ("head.judge.",)

    @classmethod
    def build_head(cls, config, width, num_seen, num_classes, source):
        return BilevelHead(width, num_classes, source)

    def loss(self, network, batch):
        head, labelled, other = network.head, *map(network.features, (batch.labelled, batch.unlabelled_views[0]))
        weights = head.judge(other.detach()).sigmoid()[:, 0]
        own = (head(other) / 0.1).softmax(dim=1).amax(dim=1).log()
        now = {"weight": head.classes.weight.detach().requires_grad_()}
        inner = -(weights * (functional_call(head.classes, now, other.detach()) / 0.1).log_softmax(1).amax(1)).mean()
        (gradient,) = torch.autograd.grad(inner, now["weight"], create_graph=True)
        stepped = {"weight": now["weight"] - 0.1 * gradient}
        outer = F.cross_entropy(functional_call(head.classes, stepped, labelled.detach()) / 0.1, batch.labels)
        loss = F.cross_entropy(head(labelled) / 0.1, batch.labels) - (weights.detach() * own).mean() + outer
        return StepResult(loss)


@dataclass(frozen=True, kw_only=True)
class ChoosyOptions(MethodOptions):
    """Has two heads and predicts with the one that had the lower loss in the epoch (as in UNO)."""

    @classmethod
    def method(cls):
        return Choosy


class ChoosyHead(nn.Module):
    def __init__(self, width: int, num_classes: int, source: torch.Generator):
        super().__init__()
        self.heads = nn.ModuleList(CosineHead.drawn(width, num_classes, source) for _ in range(2))
        self.register_buffer("chosen", torch.tensor(-1))

    def each(self, features: Tensor) -> Tensor:
        return torch.stack([head(features) for head in self.heads])

    def forward(self, features: Tensor) -> Tensor:
        return self.each(features).index_select(0, self.chosen.clamp(min=0)[None])[0]


class Choosy(Method):
    fitted, alternatives = ("head.chosen",), ("head.heads.",)

    def __init__(self, config, data):
        super().__init__(config, data)
        self.register_buffer("losses", torch.zeros(2, device=data.device))

    @classmethod
    def build_head(cls, config, width, num_seen, num_classes, source):
        return ChoosyHead(width, num_classes, source)

    def loss(self, network, batch):
        features = network.features(torch.cat([batch.labelled, batch.views]))
        logits_HBK = network.head.each(features) / 0.1
        with torch.no_grad():
            own = logits_HBK[:, len(batch.labels) :].argmax(dim=2)
            targets_HB = torch.cat([batch.labels.expand(2, -1), own], dim=1)
        losses = torch.stack([F.cross_entropy(*pair) for pair in zip(logits_HBK, targets_HB, strict=True)])
        self.losses.add_(losses.detach())
        return StepResult(losses.mean())

    @torch.no_grad()
    def end_epoch(self, average, batches, step):
        average.head.chosen.copy_(self.losses.argmin())
        self.losses.zero_()


UNHEARD_OF = {
    "demanding": DemandingOptions,
    "clusters": ClustersOptions,
    "prototypes": PrototypesOptions,
    "bilevel": BilevelOptions,
    "choosy": ChoosyOptions,
}
