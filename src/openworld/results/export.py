"""Export a trained model: an ONNX file, weights with a JSON card, or a model card for people to read.

No file is written before all files are ready and the ONNX file is checked against the original model.
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
"""Batch sizes with which the ONNX file is checked against the original model."""
TOLERANCE = 1e-4
"""Largest difference allowed between the outputs of the ONNX file and of the original model. A class that leads by more
than twice this value keeps its lead. So the predicted class is the same, unless two classes are almost equal."""
OPSET = 18
"""ONNX opset that torch's exporter writes without a conversion."""
OUTPUTS = ("probabilities", "embedding")
_MARK = re.compile(rb"openworld export \d")


@dataclass(frozen=True)
class Exported:
    """The path and the complete content of an exported file."""

    path: Path
    content: bytes
    differences: dict[str, float] = field(default_factory=dict)
    """Largest difference of an ONNX file from the original model, by output; empty for other files."""

    def facts(self) -> dict[str, Any]:
        """Return path, size and checksum for `--json`, and the differences of an ONNX file."""
        facts = {"path": str(self.path), "bytes": len(self.content), "sha256": _sha256(self.content)}
        return {**facts, "differences": self.differences, "tolerance": TOLERANCE} if self.differences else facts


@dataclass(frozen=True)
class Subject:
    """The model to export."""

    run: RunFolder
    model: Model
    weights: dict[str, Tensor]
    """Averaged weights as they are in the checkpoint, and those of the backbone."""
    facts: dict[str, Any]


def export(run: RunFolder, paths: Sequence[Path], warn: Callable[[str], None]) -> list[Exported]:
    """Write the newest model of a run to files. The suffix of each path selects the format."""
    for path in paths:
        refuse_bad_place(path)
    model = Model.load(run, torch.device("cpu"), warn)
    subject = Subject(run, model, weights_of(run, model), facts_of(run, model))
    files = [file for path in dict.fromkeys(paths) for file in FORMS[path.suffix.lower()](path, subject)]
    for file in files:
        write_whole(file.path, file.content)
    return files


def weights_of(run: RunFolder, model: Model) -> dict[str, Tensor]:
    """Return the averaged weights of the checkpoint that the model came from.

    Read them right after the model: a run that is still training removes old checkpoints.
    """
    saved = run.newest_checkpoint(lambda _: None)
    if saved is None or saved.step != model.step:
        raise UserError(f"{run.path} wrote a new checkpoint during the export; run the command again")
    return model.all_weights(saved.tensors("average"))


def refuse_bad_place(path: Path) -> None:
    """Raise a UserError if a file cannot be written, or if `openworld export` did not create the existing file."""
    suffix = path.suffix.lower()
    if suffix not in FORMS:
        raise UserError(f"{path}: the file name must end in {', '.join(list(FORMS)[:-1])} or {list(FORMS)[-1]}")
    if not path.parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} does not exist; create it or choose another folder")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path}: the folder {path.parent} is not writable; choose another folder")
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if suffix == ".onnx" and missing:
        raise UserError(f"{path}: missing packages; install them with: pip install {' '.join(missing)}")
    for target in (path, card_of(path)) if suffix == ".safetensors" else (path,):
        if target.is_dir():
            raise UserError(f"{target} is a folder; choose another file name")
        if target.exists() and not is_ours(target):
            raise UserError(f"{target} exists and was not created by openworld export; choose another file name")


def is_ours(path: Path) -> bool:
    """Return whether `openworld export` created a file."""
    with path.open("rb") as file:
        return _MARK.search(file.read(4096)) is not None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _as_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


# ONNX ---------------------------------------------------------------------------------------------------------


class ExportedModule(nn.Module):
    """The model as one module that takes and returns tensors, as torch's exporter requires."""

    def __init__(self, model: Model):
        super().__init__()
        self.network, self.plain, self.temperature = model.network, model.family.plain, model.temperature
        # (K, M) is 1 where an output belongs to a class. A product with it sums the outputs of merged classes.
        self.register_buffer("membership", model.classes.sum_by_class(torch.eye(len(model.classes.outputs))))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return class probabilities and embeddings (unit vectors)."""
        features = self.network.features(self.plain(samples))
        probabilities = (self.network.head(features) / self.temperature).softmax(dim=1)
        return probabilities @ self.membership, F.normalize(features)


def onnx_files(path: Path, subject: Subject) -> list[Exported]:
    """Return the ONNX file. Raise a UserError if its outputs differ too much from the original model."""
    with _quiet():
        content = to_onnx(subject.model, onnx_metadata(subject.facts))
        differences = differences_from(subject.model, content)
    for output, difference in differences.items():
        if not difference < TOLERANCE:
            reason = f"its {output} output differs from the original model by {difference:.1g}, more than {TOLERANCE:g}"
            raise UserError(f"{path} is not written: {reason}. Try another version of torch or onnxruntime")
    return [Exported(path, content, differences)]


def onnx_metadata(facts: dict[str, Any]) -> dict[str, str]:
    """Return what a program needs to use the file alone. Lists are JSON."""
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
    """Return an ONNX file with all weights, for batches of any size."""
    import onnx

    samples = trial_samples(model, 2)  # The exporter would take a batch size of 1 for a constant.
    try:
        program = torch.onnx.export(
            ExportedModule(model).eval(),
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
        raise UserError(f"torch {torch.__version__} cannot export the model of this run to ONNX: {reason}") from None
    proto = program.model_proto
    graph = proto.graph
    for part in (proto, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")  # The exporter's debugging notes include stack traces of this machine.
    proto.producer_name, proto.producer_version = GENERATED_BY, f"torch {torch.__version__}"
    onnx.helper.set_model_props(proto, metadata)
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString()


def differences_from(model: Model, onnx_file: bytes) -> dict[str, float]:
    """Return the largest difference between the original model and the ONNX file in onnxruntime, by output."""
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    largest = []
    for rows in BATCH_SIZES:
        samples = trial_samples(model, rows)
        exported = session.run(OUTPUTS, {input_of(model): samples.numpy()})
        original = model.probabilities(samples).numpy(), model.features(samples).numpy()
        largest.append([np.abs(one - other).max() for one, other in zip(exported, original, strict=True)])
    return dict(zip(OUTPUTS, np.max(largest, axis=0).tolist(), strict=True))  # np.max keeps NaN, so NaN is an error


def trial_samples(model: Model, rows: int) -> Tensor:
    """Return random samples. More than three images include a black one and a white one."""
    source, shape = generator(0, "export", rows), (rows, *model.sample_shape)
    if not model.takes_images:
        return model.network.mean + model.network.std * torch.randn(shape, generator=source)
    images = torch.randint(256, shape, generator=source, dtype=torch.uint8)
    if rows > 3:
        images[0], images[1] = 0, 255
    return images


def input_of(model: Model) -> str:
    """Return the name of the ONNX input."""
    return "images" if model.takes_images else "features"


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings of the exporter and its libraries, which do not concern users."""
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
    """Return the averaged weights, and a JSON card with everything that is needed to use them."""
    weights = to_bytes(subject.weights, metadata={"generated_by": GENERATED_BY})
    card = {**subject.facts, "weights": {"file": path.name, "sha256": _sha256(weights)}}
    return [Exported(path, weights), Exported(card_of(path), _as_json(card))]


def card_of(weights: Path) -> Path:
    """Return the path of the JSON card of exported weights."""
    return weights.with_suffix(".json")


def load_exported(path: str | Path, device: str | torch.device = "cpu") -> Model:
    """Load a model from exported weights. It predicts the same as the model of the run.

    Args:
        path: the .safetensors file. Its JSON card must be in the same folder.
        device: the device for the model.
    """
    path = Path(path)
    try:
        content, card = path.read_bytes(), json.loads(card_of(path).read_text(encoding="utf-8"))
        if _sha256(content) != card["weights"]["sha256"]:
            raise UserError(f"{path} is damaged, or {card_of(path).name} belongs to other weights; export both again")
        config, _ = restored_config(card["config"], card_of(path))
        classes = Classes(tuple(card["outputs"]), card["num_seen"], card["given_names"])
        shape, step = tuple(card["sample_shape"]), card["step"]
        weights = upgraded_export(from_bytes(content), card["config"])
        return Model.restored(config, classes, shape, weights, step, torch.device(device), card.get("backbone"))
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{card_of(path)} is damaged or not a card of exported weights: {error!r}") from None


# A model card -------------------------------------------------------------------------------------------------


def card_files(path: Path, subject: Subject) -> list[Exported]:
    """Return the model card."""
    return [Exported(path, markdown(subject.run, subject.facts).encode())]


FORMS: dict[str, Callable[[Path, Subject], list[Exported]]] = {
    ".onnx": onnx_files,
    ".safetensors": weight_files,
    ".md": card_files,
}
