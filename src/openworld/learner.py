"""All that changes while training, and one step of it."""

import functools
import sys
from pathlib import Path

import torch
from torch import Tensor

from openworld import checkpoint
from openworld.clusters import clustered_head
from openworld.compiling import keep, kept_path, load_kept
from openworld.config import Config
from openworld.data.batches import Batches, Drawn
from openworld.data.problem import TrainingSet
from openworld.engine import Recorder, set_up, stage
from openworld.methods import METHODS
from openworld.nets import Network, build_network, frozen
from openworld.optim import Average, Optimiser, learning_rate
from openworld.record import Meter, RunFolder
from openworld.rng import generator
from openworld.runtime import Runtime

RECALIBRATION_BATCHES = 8


class Learner:
    """All that changes while training: the network, its average, the optimiser, the method's state, the means."""

    def __init__(self, config: Config, data: TrainingSet, runtime: Runtime):
        set_up(runtime.device, runtime.compile, runtime.deterministic)
        training = self.training = config.training
        self.view = data.family.view
        source = generator(config.seed, "weights")
        network = build_network(training.network, data.num_classes, data.mean, data.std, source)
        self.network = network.to(data.device)
        self.average = Average(self.network, training)
        self.method = METHODS[config.method](config, data)
        self.optimiser = Optimiser(self.network, self.method, training)
        self.batches = Batches(data, training, config.seed, self.method.num_views, self.method.uses_labels)
        self.kept: Path | None = None
        if runtime.compile:
            sizes = training.batch_labelled, training.batch_unlabelled
            kind = config.method, training.network, training.augment, data.unlabelled.shape, sizes
            self.kept = kept_path(data.device, *kind)
            load_kept(self.kept)
            tell_of_compiling(runtime.quiet)
        self.recorder = Recorder()
        self.answering: Network | None = None
        self.meter = Meter()
        self.relayed: list[int] = []  # the steps from which it was carried on elsewhere, by relay.py
        self.step = 0

    def learn(self) -> None:
        """One step. Everything that differs from other steps is drawn here; the rest is the same work every time."""
        batches = self.batches
        pace = self.step, learning_rate(self.step, self.training), self.average.share(self.step)
        draws = torch.tensor(pace, dtype=torch.float64), *self.method.draw(batches.rows, self.step)
        inputs = *batches.draw(self.step), *(stage(drawn, batches.data.device) for drawn in draws)
        self.meter.add(self.recorder(self.advance, *inputs))
        self.step += 1

    def advance(self, *inputs: Tensor) -> dict[str, Tensor]:
        """From what was drawn to new weights, without the host; scalars worth a line in the record."""
        num_drawn = len(Drawn._fields)
        pace, *draws = inputs[num_drawn:]
        with torch.no_grad():
            batch = Drawn(*inputs[:num_drawn]).shown(self.view)
        result = self.method.loss(self.network, batch, *draws)
        step, rate, share = pace.unbind()
        gradient_norm = self.optimiser.update(result.loss, rate, step)
        self.average.update(self.network, share)
        return {"loss": result.loss.detach(), "gradient_norm": gradient_norm, **result.logs}

    def keep_compiled(self) -> None:
        """For the next process."""
        if self.kept:
            keep(self.kept)

    def settle_average(self) -> None:
        """Make the averaged model fit for use: its BatchNorm statistics are those of the latest batches.

        With their labelled rows, as when it learns (but neither mixed nor strengthened): without those rows its answers
        would lean to seen classes.
        """
        recent = range(max(self.step - RECALIBRATION_BATCHES, 0), self.step)
        self.average.recalibrate(self.batches.at(step).images for step in recent)

    def end_epoch(self) -> Network:
        """What the method does once an epoch; returns the averaged model as it answers after that."""
        average = self.answering_average()
        self.method.end_epoch(average, self.batches, self.step)
        if not self.method.trains_head:  # the average of a head that stays as it is, is that head
            for network in (self.network, self.average.network):
                network.head.load_state_dict(average.head.state_dict())
        return average

    def answering_average(self) -> Network:
        """The averaged model as it answers now; always the same object, for the sake of what was recorded with it."""
        answering = frozen(self.average.network)
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
        head = clustered_head(frozen(self.average.network), data, source)
        for network in (self.network, self.average.network):
            network.head.load_state_dict({"weight": head})

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        saved.load_into(self.network, "model")
        saved.load_into(self.average.network, "average")
        saved.load_into(self.method, "method")
        self.optimiser.load(saved.tensors("optimizer"))
        self.meter.load(saved.state["meter"], next(self.network.parameters()).device)
        self.relayed = saved.state.get("relayed", [])
        self.step = saved.step


@functools.cache
def tell_of_compiling(quiet: bool) -> None:
    """Once in a process."""
    if not quiet:
        message = "compiling the training step: up to a minute, less where it was kept from before"
        print(f"{message} (--compile off does without)", file=sys.stderr, flush=True)
