"""A trained model for other programs: an ONNX file, weights with a JSON card, or a model card for people to read.

Everything is made, and the ONNX file is held against the original, before the first file is written.
"""

import hashlib
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from openworld import __version__
from openworld.core.config_files import restored_config
from openworld.core.errors import UserError
from openworld.core.files import write_whole
from openworld.core.formats import upgraded_export
from openworld.ops.rng import generator
from openworld.results.model_card import GENERATED_BY, facts_of, markdown
from openworld.runs.classes import Classes
from openworld.runs.folder import RunFolder
from openworld.runs.model import Model

BATCH_SIZES = (1, 3, 16)
"""Of the samples on which the ONNX file is held against the original."""
TOLERANCE = 1e-4
"""By which its probabilities and embeddings may differ. What is more than twice that ahead stays ahead: so the class is
the same, unless two are as good as tied."""
OPSET = 18
"""Of ONNX: what torch's exporter writes without having to convert it."""
OUTPUTS = ("probabilities", "embedding")
_MARK = re.compile(rb"openworld export \d")


@dataclass(frozen=True)
class Exported:
    """A file, complete."""

    path: Path
    content: bytes
    differences: dict[str, float] = field(default_factory=dict)
    """How far an ONNX file is from the original at most, by output."""

    def facts(self) -> dict[str, Any]:
        facts = {"path": str(self.path), "bytes": len(self.content), "sha256": _sha256(self.content)}
        return {**facts, "differences": self.differences, "tolerance": TOLERANCE} if self.differences else facts


@dataclass(frozen=True)
class Subject:
    """What is to be exported."""

    run: RunFolder
    model: Model
    weights: dict[str, Tensor]
    """As they were trained."""
    facts: dict[str, Any]


def export(run: RunFolder, paths: Sequence[Path], warn: Callable[[str], None]) -> list[Exported]:
    """Write the newest model of a run in the forms that the suffixes of the paths name."""
    for path in paths:
        refuse_bad_place(path)
    model = Model.load(run, torch.device("cpu"), warn)
    subject = Subject(run, model, weights_of(run, model), facts_of(run, model))
    files = [file for path in dict.fromkeys(paths) for file in FORMS[path.suffix.lower()](path, subject)]
    for file in files:
        write_whole(file.path, file.content)
    return files


def weights_of(run: RunFolder, model: Model) -> dict[str, Tensor]:
    """Of the model's own checkpoint, at once: a run that goes on removes old ones."""
    saved = run.newest_checkpoint(lambda _: None)
    if saved is None or saved.step != model.step:
        raise UserError(f"{run.path} went on training meanwhile: try again")
    return saved.tensors("average")


def refuse_bad_place(path: Path) -> None:
    """Before the work; and what somebody else wrote is not replaced."""
    suffix = path.suffix.lower()
    if suffix not in FORMS:
        raise UserError(f"{path}: its name must end in {', '.join(list(FORMS)[:-1])} or {list(FORMS)[-1]}")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path}: nothing may be written into {path.parent}; choose another folder")
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if suffix == ".onnx" and missing:
        raise UserError(f"{path}: {', '.join(missing)} is not installed: pip install {' '.join(missing)}")
    for target in (path, card_of(path)) if suffix == ".safetensors" else (path,):
        if target.is_dir():
            raise UserError(f"{target} is a folder: choose another name")
        if target.exists() and not is_ours(target):
            raise UserError(f"{target} exists and was not made by openworld export: choose another name")


def is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return _MARK.search(file.read(4096)) is not None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _as_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


# ONNX ---------------------------------------------------------------------------------------------------------


class Answering(nn.Module):
    """The model as one function of tensors, as the exporter wants it."""

    def __init__(self, model: Model):
        super().__init__()
        self.network, self.plain, self.temperature = model.network, model.family.plain, model.temperature
        # which class each output belongs to, (K, M): a product with it adds up what outputs of one name have
        self.register_buffer("membership", model.classes.sum_by_class(torch.eye(len(model.classes.outputs))))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        features = self.network.features(self.plain(samples))
        shares = (self.network.head(features) / self.temperature).softmax(dim=1)
        return shares @ self.membership, F.normalize(features)


def onnx_files(path: Path, subject: Subject) -> list[Exported]:
    with _quiet():
        content = to_onnx(subject.model, onnx_metadata(subject.facts))
        differences = differences_from(subject.model, content)
    for output, difference in differences.items():
        if not difference < TOLERANCE:
            off = f"its {output} differ from the original's by {difference:.1g}, more than {TOLERANCE:g}"
            raise UserError(f"{path} is not written: {off}; another version of torch or onnxruntime may do better")
    return [Exported(path, content, differences)]


def onnx_metadata(facts: dict[str, Any]) -> dict[str, str]:
    """What a program has to know that has nothing but the file; lists are JSON."""
    shape = facts["sample_shape"]
    sizes = {"channels": shape[0], "image_size": shape[1]} if len(shape) == 3 else {"features": shape[0]}
    metadata = {
        "class_names": json.dumps(facts["classes"], ensure_ascii=False),
        "novel_classes": json.dumps(facts["novel_classes"], ensure_ascii=False),
        **sizes,
        "preprocessing": facts["preprocessing"],
        "temperature": facts["temperature"],
        "data": facts["data"],
        "step": facts["step"],
        "openworld_version": __version__,
    }
    return {name: str(value) for name, value in metadata.items()}


def to_onnx(model: Model, metadata: dict[str, str]) -> bytes:
    """One file with all weights in it, for batches of any size."""
    import onnx

    samples = trial_samples(model, 2)  # a batch of one would be taken for a constant
    try:
        program = torch.onnx.export(
            Answering(model).eval(),
            (samples,),
            dynamo=True,
            input_names=[input_of(model)],
            output_names=OUTPUTS,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            opset_version=OPSET,
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"torch {torch.__version__} cannot export network and views of this run: {reason}") from None
    proto = program.model_proto
    graph = proto.graph
    for part in (proto, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")  # the exporter's notes for debugging, stack traces of this machine among them
    proto.producer_name, proto.producer_version = GENERATED_BY, f"torch {torch.__version__}"
    onnx.helper.set_model_props(proto, metadata)
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString()


def differences_from(model: Model, onnx_file: bytes) -> dict[str, float]:
    """The largest, by output, between the original and what onnxruntime makes of the file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    largest = []
    for rows in BATCH_SIZES:
        samples = trial_samples(model, rows)
        told = session.run(OUTPUTS, {input_of(model): samples.numpy()})
        original = model.probabilities(samples).numpy(), model.features(samples).numpy()
        largest.append([np.abs(one - other).max() for one, other in zip(told, original, strict=True)])
    return dict(zip(OUTPUTS, np.max(largest, axis=0).tolist(), strict=True))  # not a number stays one


def trial_samples(model: Model, rows: int) -> Tensor:
    """Random samples; among many, a black image and a white one."""
    source, shape = generator(0, "export", rows), (rows, *model.sample_shape)
    if not model.takes_images:
        return model.network.mean + model.network.std * torch.randn(shape, generator=source)
    images = torch.randint(256, shape, generator=source, dtype=torch.uint8)
    if rows > 3:
        images[0], images[1] = 0, 255
    return images


def input_of(model: Model) -> str:
    return "images" if model.takes_images else "features"


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter and its libraries warn of what is none of a user's business."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# Weights with a card ------------------------------------------------------------------------------------------


def weight_files(path: Path, subject: Subject) -> list[Exported]:
    """The averaged weights as they were trained, and beside them all that is needed to use them."""
    weights = to_bytes(subject.weights, metadata={"generated_by": GENERATED_BY})
    card = {**subject.facts, "weights": {"file": path.name, "sha256": _sha256(weights)}}
    return [Exported(path, weights), Exported(card_of(path), _as_json(card))]


def card_of(weights: Path) -> Path:
    return weights.with_suffix(".json")


def load_exported(path: str | Path, device: str | torch.device = "cpu") -> Model:
    """The model of exported weights, which lie beside their card: it answers as the run's own does."""
    path = Path(path)
    try:
        content, card = path.read_bytes(), json.loads(card_of(path).read_text(encoding="utf-8"))
        if _sha256(content) != card["weights"]["sha256"]:
            raise UserError(f"{path} is damaged, or {card_of(path).name} is the card of other weights")
        config, _ = restored_config(card["config"], card_of(path))
        classes = Classes(tuple(card["outputs"]), card["num_seen"], card["given_names"])
        shape, step = tuple(card["sample_shape"]), card["step"]
        weights = upgraded_export(from_bytes(content), card["config"])
        return Model.restored(config, classes, shape, weights, step, torch.device(device))
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{card_of(path)} is not the card of exported weights, or is damaged: {error!r}") from None


# A model card -------------------------------------------------------------------------------------------------


def card_files(path: Path, subject: Subject) -> list[Exported]:
    return [Exported(path, markdown(subject.run, subject.facts).encode())]


FORMS: dict[str, Callable[[Path, Subject], list[Exported]]] = {
    ".onnx": onnx_files,
    ".safetensors": weight_files,
    ".md": card_files,
}
