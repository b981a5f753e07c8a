"""All that changes while training, and one step of it."""

import functools
import sys
from pathlib import Path

import torch
from torch import Tensor

from openworld.compute.compiling import compiled_path, load_compiled, save_compiled
from openworld.compute.cuda_graphs import GraphRunner
from openworld.compute.device import set_up, stage
from openworld.compute.runtime import Runtime
from openworld.core.config import Config
from openworld.core.errors import named
from openworld.data.batches import Batches, Drawn
from openworld.data.problem import TrainingSet
from openworld.methods.base import Method
from openworld.nets.building import network_of
from openworld.nets.features import clustered_head
from openworld.nets.inference import inference_copy
from openworld.nets.network import Network
from openworld.ops.rng import generator
from openworld.ops.schedule import Pace
from openworld.runs import checkpoint
from openworld.runs.folder import RunFolder
from openworld.training.average import Average
from openworld.training.meter import Meter
from openworld.training.optimiser import Optimiser

RECALIBRATION_BATCHES = 8


class Learner:
    """All that changes while training: the network, its average, the optimiser, the method's state, the means."""

    def __init__(self, config: Config, data: TrainingSet, runtime: Runtime):
        set_up(runtime.device, runtime.compile, runtime.deterministic)
        kind, training = config.options.method(), config.training
        kind.refuse(config, data)
        self.training = training
        self.batches = Batches(data, training, config.seed, kind.views(config), kind.uses_labels)
        network = network_of(config, data.shown_shape, data.num_seen, data.num_classes, data.mean, data.std)
        self.network = network.to(data.device)
        self.average = Average(self.network, training)
        self.method = kind(config, data)
        refuse_parameters(self.method)
        self.optimiser = Optimiser(self.network, training, self.pace)
        self.compiled: Path | None = None
        if runtime.compile:
            sizes = training.batch_labelled, training.batch_unlabelled, training.norm_rows
            kind_of_work = config.method, training.network, training.augment, data.unlabelled.shape, sizes
            self.compiled = compiled_path(data.device, *kind_of_work)
            load_compiled(self.compiled)
            tell_of_compiling(runtime.quiet)
        self.recorder = GraphRunner()
        self.answering: Network | None = None
        self.meter = Meter()
        self.relayed: list[int] = []  # the steps from which it was carried on elsewhere, by relay.py
        self.step = 0
        self.has_learnt = False

    def learn(self) -> None:
        """One step. Everything that differs from other steps is drawn here; the rest is the same work every time."""
        batches = self.batches
        pace = self.step, self.learning_rate(self.step), self.average.share(self.step)
        draws = torch.tensor(pace, dtype=torch.float64), *self.method.draw(batches.rows, self.step)
        drawn = batches.draw(self.step).tensors
        inputs = *(stage(each, batches.data.device) for each in draws), *drawn
        advance = functools.partial(self.advance, len(draws))
        self.meter.add(self.recorder(advance, *inputs))
        if not self.has_learnt:
            refuse_unreached(self.method, self.network)
            self.has_learnt = True
        self.step += 1

    def pace(self, name: str) -> Pace | None:
        """How a parameter of the network is trained, by its name; None: not at all."""
        return None if name.startswith(self.method.fitted) else self.method.pace(name)

    def learning_rate(self, step: int) -> float:
        return self.method.learning_rate(step, self.training)

    def advance(self, num_draws: int, *inputs: Tensor) -> dict[str, Tensor]:
        """From what was drawn to new weights, without the host; scalars worth a line in the record."""
        pace, *draws = inputs[:num_draws]
        with torch.no_grad():
            batch = self.batches.shown(Drawn.of(inputs[num_draws:]))
        teacher = {"teacher": self.average.network.train()} if self.method.uses_teacher else {}
        result = self.method.loss(self.network, batch, *draws, **teacher)
        step, rate, share = pace.unbind()
        gradient_norm = self.optimiser.update(result.loss, rate, step)
        self.average.update(self.network, share)
        return {"loss": result.loss.detach(), "gradient_norm": gradient_norm, **result.logs}

    def save_compiled(self) -> None:
        """For the next process."""
        if self.compiled:
            save_compiled(self.compiled)

    def recalibrate_average(self) -> None:
        """Make the averaged model fit for use: its BatchNorm statistics are those of the latest batches.

        With their labelled rows, as when it learns (but neither mixed nor strengthened): without those rows its answers
        would lean to seen classes.
        """
        recent = range(max(self.step - RECALIBRATION_BATCHES, 0), self.step)
        self.average.recalibrate(self.batches.at(step).images for step in recent)

    def end_epoch(self) -> Network:
        """What the method does once an epoch; returns the averaged model as it answers after that."""
        average = self.inference_average()
        self.method.end_epoch(average, self.batches, self.step)
        fitted = {name: value for name, value in average.state_dict().items() if name.startswith(self.method.fitted)}
        for network in (self.network, self.average.network):  # the average of what stays as it is, is that
            own = network.state_dict()
            for name, value in fitted.items():
                own[name].copy_(value)
        return average

    def inference_average(self) -> Network:
        """The averaged model as it answers now; always the same object, for the sake of what was recorded with it."""
        answering = inference_copy(self.average.network)
        if self.answering is None:
            self.answering = answering
        else:
            self.answering.load_state_dict(answering.state_dict())
        return self.answering

    def save(self, run: RunFolder) -> None:
        parts = {
            "model": self.network.state_dict(),
            "average": self.average.network.state_dict(),
            "optimizer": self.optimiser.state(),
            "method": self.method.state_dict(),
        }
        checkpoint.save(run.checkpoints, self.step, parts, {"meter": self.meter.state(), "relayed": self.relayed})

    def take_body(self, saved: checkpoint.Checkpoint) -> None:
        """Begin with the averaged network of another run, all but its head."""
        body = {
            name.removeprefix("body."): tensor
            for name, tensor in saved.tensors("average").items()
            if name.startswith("body.")
        }
        for network in (self.network, self.average.network):
            network.body.load_state_dict(body)

    def begin_with_clusters(self) -> None:
        """The head begins with what the features tell of the classes: a drawn one has to find that first."""
        data = self.batches.data
        source = generator(self.batches.seed, "clusters", device=data.device)
        centres = clustered_head(inference_copy(self.average.network), data, source)
        for network in (self.network, self.average.network):
            self.method.begin(network.head, centres)

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        saved.load_into(self.network, "model")
        saved.load_into(self.average.network, "average")
        saved.load_into(self.method, "method")
        self.optimiser.load(saved.tensors("optimizer"))
        self.meter.load(saved.state["meter"], self.network.mean.device)
        self.relayed = saved.state.get("relayed", [])
        self.step = saved.step


def refuse_parameters(method: Method) -> None:
    """Before they are trained by nobody."""
    own = [name for name, _ in method.named_parameters()]
    if own:
        raise TypeError(f"{type(method).__name__}.{own[0]}: a method's weights belong into the head that it builds")


def refuse_unreached(method: Method, network: Network) -> None:
    """After a step: weights that the loss does not reach would answer as they were drawn, and nobody would notice."""
    for name, weights in network.named_parameters():
        if weights.requires_grad and weights.grad is None:
            way_out = "train it, freeze it (`pace`), set it in `end_epoch` (`fitted`), or leave it out"
            raise TypeError(f"the loss of {type(method).__name__} does not reach {name} of the network: {way_out}")


@functools.cache
def tell_of_compiling(quiet: bool) -> None:
    """Once in a process."""
    if not quiet:
        message = "compiling the training step: up to a minute, less where it was kept from before"
        print(f"{message} ({named('compile', 'off')} does without)", file=sys.stderr, flush=True)
