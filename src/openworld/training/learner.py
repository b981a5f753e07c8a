"""The learner: everything that changes during training, and one training step."""

import copy
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
from openworld.nets.backbones import Backbone
from openworld.nets.bodies import Adapter
from openworld.nets.building import network_of
from openworld.nets.features import begin_with_clusters
from openworld.nets.inference import inference_copy
from openworld.nets.network import Network
from openworld.ops.rng import generator
from openworld.ops.schedule import Pace
from openworld.runs import checkpoint
from openworld.runs.folder import RunFolder
from openworld.training.average import Average
from openworld.training.meter import Meter
from openworld.training.optimiser import Optimiser

PACE_OF_BACKBONE = Pace(rate=0.1)
"""The last blocks of a backbone learn slower than the rest, which is what GCD does too."""
RECALIBRATION_BATCHES = 8
"""Number of batches on which the BatchNorm statistics of the averaged model are measured."""


class Learner:
    """Everything that changes during training: network, averaged model, optimiser, state of the method, logged means.

    `learn` makes one step. `end_epoch` does the method's work at the end of an epoch. `save` and `restore` write and
    read a checkpoint.
    """

    def __init__(self, config: Config, data: TrainingSet, runtime: Runtime, backbone: Backbone | None = None):
        """Build the network and everything else.

        Args:
            config: the configuration of the run.
            data: the training set.
            runtime: the device and how data gets to it.
            backbone: the backbone whose last blocks are trained, if the training set contains images for it.
        """
        set_up(runtime.device, runtime.compile, runtime.deterministic)
        method_class, training = config.options.method(), config.training
        method_class.refuse(config, data)
        self.training = training
        views = method_class.views(config)
        self.batches = Batches(data, training, config.seed, views, method_class.uses_labels)
        backbone = copy.deepcopy(backbone) if data.has_images else None
        self.trained_of_backbone = backbone.last_blocks(training.finetune) if backbone else []
        self.network = new_network(config, data, backbone).to(data.device)
        self.average = Average(self.network, training)
        self.method = method_class(config, data)
        check_no_parameters(self.method)
        self.optimiser = Optimiser(self.network, training, self.pace)
        self.compiled_file: Path | None = None
        if runtime.compile:
            sizes = training.batch_labelled, training.batch_unlabelled, training.norm_rows
            kind_of_work = config.method, training.network, training.augment, data.unlabelled.shape, sizes
            self.compiled_file = compiled_path(data.device, *kind_of_work)
            load_compiled(self.compiled_file)
            announce_compilation(runtime.quiet)
        self.run_step = GraphRunner()
        self.answering: Network | None = None  # the averaged model for inference, created at its first use
        self.meter = Meter()
        self.relayed: list[int] = []  # the steps at which benchmarks/relay.py moved the run to another machine
        self.step = 0
        self.has_made_a_step = False

    def learn(self) -> None:
        """Make one training step.

        The host computes here what differs from step to step: the learning rate, the random draws and the samples. The
        rest, `advance`, is the same work in every step. On a GPU it is captured once as a CUDA graph and replayed.
        """
        device = self.batches.data.device
        numbers = self.step, self.learning_rate(self.step), self.average.share(self.step)
        draws = torch.tensor(numbers, dtype=torch.float64), *self.method.draw(self.batches.rows, self.step)
        samples = self.batches.draw(self.step).tensors
        inputs = *(stage(draw, device) for draw in draws), *samples
        advance = functools.partial(self.advance, len(draws))
        self.meter.add(self.run_step(advance, *inputs))
        if not self.has_made_a_step:
            check_every_weight_is_trained(self.method, self.network)
            self.has_made_a_step = True
        self.step += 1

    def advance(self, num_draws: int, *inputs: Tensor) -> dict[str, Tensor]:
        """Compute the loss, update the weights and the averaged model, and return scalars for the log.

        The host never waits for the device here.

        Args:
            num_draws: how many of the inputs are draws.
            inputs: first the draws: a tensor (step, learning rate, weight in the average), then those of the method.
                After them come the tensors of the batch (`Drawn`).
        """
        numbers, *draws = inputs[:num_draws]
        with torch.no_grad():
            batch = self.batches.shown(Drawn.of(inputs[num_draws:]))
        teacher = {"teacher": self.average.network.train()} if self.method.uses_teacher else {}
        result = self.method.loss(self.network, batch, *draws, **teacher)
        step, rate, share = numbers.unbind()
        gradient_norm = self.optimiser.update(result.loss, rate, step)
        self.average.update(self.network, share)
        return {"loss": result.loss.detach(), "gradient_norm": gradient_norm, **result.logs}

    def pace(self, name: str) -> Pace | None:
        """Return how fast a parameter of the network is trained, by its name. None: the optimiser does not train it."""
        if name.startswith("backbone."):
            parameter = self.network.get_parameter(name)
            return PACE_OF_BACKBONE if any(parameter is each for each in self.trained_of_backbone) else None
        return None if name.startswith(self.method.fitted) else self.method.pace(name)

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        return self.method.learning_rate(step, self.training)

    def save_compiled(self) -> None:
        """Write the compiled code to the cache for the next process, if this process compiles."""
        if self.compiled_file:
            save_compiled(self.compiled_file)

    def recalibrate_average(self) -> None:
        """Measure the BatchNorm statistics of the averaged model on the latest batches. It is usable after that.

        The batches include their labelled rows, as in training (but without mixup and without strong views). Without
        these rows, the predictions would favour seen classes.
        """
        recent = range(max(self.step - RECALIBRATION_BATCHES, 0), self.step)
        self.average.recalibrate(self.batches.at(step).images for step in recent)

    def end_epoch(self) -> Network:
        """Do the method's work at the end of an epoch. Return the averaged model for inference, after that work."""
        average = self.inference_average()
        self.method.end_epoch(average, self.batches, self.step)
        fitted = {name: value for name, value in average.state_dict().items() if name.startswith(self.method.fitted)}
        # The optimiser does not change fitted tensors, so their average is the tensors themselves
        for network in (self.network, self.average.network):
            tensors = network.state_dict()
            for name, value in fitted.items():
                tensors[name].copy_(value)
        return average

    def inference_average(self) -> Network:
        """Return the present averaged model for inference.

        It is the same object in every call, because captured CUDA graphs refer to its tensors.
        """
        latest = inference_copy(self.average.network)
        if self.answering is None:
            self.answering = latest
        else:
            self.answering.load_state_dict(latest.state_dict())
        return self.answering

    def save(self, run: RunFolder) -> None:
        """Write a checkpoint of the present step into the run folder."""
        parts = {
            "model": self.network.state_dict(),
            "average": self.average.network.state_dict(),
            "optimizer": self.optimiser.state(),
            "method": self.method.state_dict(),
        }
        checkpoint.save(run.checkpoints, self.step, parts, {"meter": self.meter.state(), "relayed": self.relayed})

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Continue from a checkpoint of this run."""
        saved.load_into(self.network, "model")
        saved.load_into(self.average.network, "average")
        saved.load_into(self.method, "method")
        self.optimiser.load(saved.tensors("optimizer"))
        self.meter.load(saved.state["meter"], self.network.mean.device)
        self.relayed = saved.state.get("relayed", [])
        self.step = saved.step

    def load_body(self, saved: checkpoint.Checkpoint) -> None:
        """Load the body of another run's averaged model as initial weights. The head keeps its own."""
        body = {
            name.removeprefix("body."): tensor
            for name, tensor in saved.tensors("average").items()
            if name.startswith("body.")
        }
        for network in (self.network, self.average.network):
            network.body.load_state_dict(body)

    def begin_with_clusters(self) -> None:
        """Initialise the head by clusters of the features. A random head would have to find these classes first."""
        data = self.batches.data
        source = generator(self.batches.seed, "clusters", device=data.device)
        found = inference_copy(self.average.network)
        centres, sizes = begin_with_clusters(found, data, source)
        for network in (self.network, self.average.network):
            if isinstance(network.body, Adapter):
                network.body.load_state_dict(found.body.state_dict())
            self.method.begin(network.head, centres)
        if sizes is not None:
            self.method.assume(sizes)


def new_network(config: Config, data: TrainingSet, backbone: Backbone | None) -> Network:
    """Return the network for a training set. Through a backbone, it gets the features that the backbone gives.

    The adapter takes features as they are: standard scores would enlarge what is zero in most samples.
    """
    shape, mean, std = (backbone.num_features,) if backbone else data.shown_shape, data.mean, data.std
    if backbone or config.training.network == "adapter":
        mean, std = torch.zeros(shape), torch.ones(shape)
    return network_of(config, shape, data.num_seen, data.num_classes, mean, std, backbone)


def check_no_parameters(method: Method) -> None:
    """Raise a TypeError if the method itself has parameters: the optimiser would not train them."""
    parameters = [name for name, _ in method.named_parameters()]
    if parameters:
        raise TypeError(
            f"{type(method).__name__}.{parameters[0]}: a method must not have weights of its own; "
            "put them into the head that it builds"
        )


def check_every_weight_is_trained(method: Method, network: Network) -> None:
    """Raise a TypeError after a step if a weight got no gradient. It would silently keep its random initial value."""
    for name, weights in network.named_parameters():
        if weights.requires_grad and weights.grad is None:
            raise TypeError(
                f"the loss of {type(method).__name__} gives no gradient to {name} of the network: "
                "train it, freeze it (`pace`), set it in `end_epoch` (`fitted`), or leave it out"
            )


@functools.cache
def announce_compilation(quiet: bool) -> None:
    """Print, once in a process, that the training step will be compiled."""
    if not quiet:
        message = "compiling the training step: this takes up to a minute, less if the compiled code is cached"
        print(f"{message} ({named('compile', 'off')} trains without it)", file=sys.stderr, flush=True)
