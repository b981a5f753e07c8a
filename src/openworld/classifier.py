"""`OpenWorldClassifier`: the same training, with the interface of a scikit-learn estimator."""

import itertools
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import Tags, assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, cat

from openworld.api import train_on
from openworld.compute.runtime import make_runtime, pick_device
from openworld.core.errors import UserError, called_from_python, is_utf8
from openworld.core.signals import Interrupted
from openworld.data.arrays import checked_samples, is_unlabelled
from openworld.data.dataset import Dataset, Files, Part
from openworld.data.loader import Loader
from openworld.methods import METHODS
from openworld.runs.folder import RunFolder
from openworld.runs.model import PackedModel

SAMPLES_PER_STEP, MOST_STEPS = 4, 3000
FEWEST_STEPS_OF_FEATURES, FEWEST_STEPS_OF_IMAGES = 300, 800
"""Default length of a fit: one step for this many samples, within these bounds (accuracy on digits: docs/python.md).
It is a count and not a time, so that a fit can be repeated."""
EPOCHS, EPOCH_STEPS = 10, 25
"""Number of epochs of a fit, and the smallest number of steps in an epoch."""

ROWS = 256
"""Number of rows of features in a batch for prediction."""

MISSING = ("None", "nan", "<NA>", "-1")
"""Objects that mean "no label", as text."""


class OpenWorldClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):
    """A classifier that learns from few labels, and also finds classes that have no labels.

    It does what ``openworld train`` does. The label -1 (or '') marks an unlabelled sample. A class with labelled
    samples is a seen class. Unlabelled samples may also belong to novel classes, which have no labels. The classifier
    finds the novel classes and adds them to its classes. If every sample has a label, it is an ordinary classifier.
    Other classifiers do that as well, and faster.

    Parameters
    ----------
    num_classes : int, "auto" or None, default=None
        Number of seen and novel classes together. None estimates it in features of a network: those of the backbone,
        or your own if they have 128 columns or more. Otherwise it assumes as many novel classes as seen classes, or no
        novel classes if every sample has a label. "auto" always estimates the number. Without a backbone this takes a
        minute and a half longer for images.
    backbone : str or None, default=None
        A pretrained network for images, whose features are classified, as in ``openworld train --backbone``. None uses
        ``"efficientnet-lite2"`` for coloured photos of 32 pixels or more, if it is installed. ``"none"`` learns from
        scratch.
    method : str or None, default=None
        The training method, one of those of ``openworld train --method``. None selects the paper's method, ``"trssl"``,
        or that of the recipe in ``settings``.
    steps, minutes : int and float, default=None
        Length of training. Give at most one of them. The default is a step for every 4 samples, but at least 300 for
        features and 800 for images, and at most 3,000. That takes seconds for features, and minutes for thousands of
        images on a CPU. With ``minutes`` the number of steps depends on the speed of the machine, so that two fits
        are no longer the same.
    device : "auto", "cpu", "cuda" or "mps", default="auto"
        Device for training and prediction.
    random_state : int, numpy generator or None, default=0
        Random seed. On a CPU the same seed gives the same model. None uses a different seed in each fit.
    out : str, pathlib.Path or None, default=None
        The run folder, for ``openworld report`` and other commands. If it already contains a run, that run is kept, and
        the new run goes to ``out-2``, ``out-3``, ... None uses a temporary folder, which is deleted together with the
        estimator.
    verbose : bool, default=False
        Whether to print progress.
    settings : dict or None, default=None
        Other settings that ``openworld train --help`` lists, with underscores: ``{"lr": 0.1, "workers": 0}``.

    Attributes
    ----------
    classes_ : (M,) array
        The seen classes, sorted, then the novel classes. Novel classes are the numbers after the largest label, or
        "novel-1", "novel-2", ... if the labels are strings.
    n_seen_classes_ : int
        Number of seen classes.
    n_features_in_ : int
        Number of columns of X, if X contains features.
    summary_ : dict
        The content of summary.json of the run.
    run_ : str
        The run folder. A copy or a pickle can predict without it.

    Notes
    -----
    ``fit`` always starts from scratch. It warns if this discards an earlier model, or if ``out`` already contains a
    run, finished or not. It never resumes a stopped run. If every sample has a label, the class proportions are those
    of the labels. Otherwise all classes, seen and novel, are assumed to be equally frequent among the labelled and
    unlabelled samples together (the prior "even" of docs/backbones.md).

    Examples
    --------
    Three clusters of points, one of them without labels:

    >>> import numpy as np
    >>> from openworld import OpenWorldClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(centre, 0.3, (40, 2)) for centre in ([0, 0], [4, 0], [0, 4])])
    >>> y = np.repeat([0, 1, -1], 40)
    >>> y[10:40] = y[50:80] = -1
    >>> model = OpenWorldClassifier(num_classes=3, steps=40, device="cpu").fit(X, y)
    >>> model.predict([[0, 0], [4, 0], [0, 4]])
    array([0, 1, 2])
    """

    def __init__(
        self,
        num_classes: int | str | None = None,
        *,
        backbone: str | None = None,
        method: str | None = None,
        steps: int | None = None,
        minutes: float | None = None,
        device: str = "auto",
        random_state: Any = 0,
        out: str | Path | None = None,
        verbose: bool = False,
        settings: dict[str, Any] | None = None,
    ):
        self.num_classes = num_classes
        self.backbone = backbone
        self.method = method
        self.steps = steps
        self.minutes = minutes
        self.device = device
        self.random_state = random_state
        self.out = out
        self.verbose = verbose
        self.settings = settings

    def fit(self, X: Any, y: Any) -> "OpenWorldClassifier":
        """Train on labelled and unlabelled samples.

        Parameters
        ----------
        X : (N, D) features, (N, H, W) or (N, H, W, C) uint8 images, or N paths of image files
        y : array of shape (N,)
            -1, or '' among strings, means unlabelled. In object arrays None and NaN mean the same.
        """
        if hasattr(self, "model_"):
            warnings.warn("already fitted: the earlier model is discarded, training starts from scratch", stacklevel=2)
        self._discard_fit()
        with _scikit_learn_errors():
            labels = _checked_labels(y)
            content = _checked_content(self, X, reset=True)
            check_consistent_length(content, labels)
            known, numbers = _numbered(labels)
            dataset = _dataset(content, numbers, known)
            self.summary_ = self._train(dataset, numbers)
            self._packed_ = PackedModel.of(RunFolder(Path(self.summary_["run"])))
            self.model_ = self._packed_.model(pick_device(self.device))
        self.run_ = self.summary_.pop("run")
        self.classes_ = _all_classes(known, self.model_.classes.names[len(known) :])
        self.n_seen_classes_ = len(known)
        return self

    def _train(self, dataset: Dataset, numbers: np.ndarray) -> dict[str, Any]:
        folder = self._new_folder()
        try:
            return train_on(dataset, out=folder, **self._arguments_of_train_on(dataset, numbers))
        except KeyboardInterrupt:
            kept = f"its files are in {folder}" if self.out is not None else "pass out=FOLDER to keep its files"
            raise KeyboardInterrupt(f"the fit was stopped; {kept}") from None

    def predict(self, X: Any) -> np.ndarray:
        """Return (N,): the most probable class of each sample, seen or novel."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return (N, M): the probability of each class, in the order of ``classes_``."""
        check_is_fitted(self, "model_")
        probabilities = self._apply(self.model_.probabilities, X).astype(np.float64)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def transform(self, X: Any) -> np.ndarray:
        """Return (N, F): the features of the network before its head, as unit vectors."""
        check_is_fitted(self, "model_")
        return self._apply(self.model_.features, X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the loaded model, which `_packed_` replaces. A temporary folder is not copied."""
        return {name: value for name, value in super().__getstate__().items() if name not in ("model_", "_remove_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if isinstance(state.get("_packed_"), dict):  # pickled before PackedModel existed
            texts = (state["_packed_"][name] for name in ("config.toml", "split.json", "average"))
            self._packed_ = PackedModel(*texts, step=self.summary_["steps"])
        if "_packed_" in state:
            self.model_ = self._packed_.model(pick_device(self.device))

    def _discard_fit(self) -> None:
        """Delete the attributes and the temporary folder of an earlier fit."""
        if hasattr(self, "_remove_"):
            self._remove_()
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _new_folder(self) -> Path:
        """Return a folder for the run: `out`, a numbered one beside it, or a temporary one."""
        if self.out is None:
            folder = Path(tempfile.mkdtemp(prefix="openworld-"))
            self._remove_ = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            return folder
        out = Path(self.out)
        others = (out.with_name(f"{out.name}-{number}") for number in itertools.count(2))
        unused = next(folder for folder in itertools.chain([out], others) if not RunFolder(folder).exists)
        if unused != out:
            warnings.warn(f"{out} already contains a run, which is kept; the new run goes to {unused}", stacklevel=4)
        return unused

    def _arguments_of_train_on(self, dataset: Dataset, numbers: np.ndarray) -> dict[str, Any]:
        """Return the keyword arguments for `train_on`."""
        settings, num_seen, all_labelled = self.settings or {}, int(numbers.max()) + 1, bool((numbers >= 0).all())
        requested = {
            "num_classes": self.num_classes,
            "backbone": self.backbone,
            "method": self.method,
            "steps": self.steps,
            "minutes": self.minutes,
            "device": self.device,
            "seed": _seed(self.random_state),
            "quiet": not self.verbose,
        }
        misplaced = settings.keys() & {*requested, "out"}
        if misplaced:
            name = min(misplaced)
            parameter = {"seed": "random_state", "quiet": "verbose"}.get(name, name)
            raise ValueError(f"settings: {name} is not allowed here; use the parameter {parameter} instead")
        if all_labelled and self.num_classes in (None, "auto"):  # there are no novel classes
            requested["num_classes"] = num_seen
        if all_labelled and requested["num_classes"] != num_seen:  # the sizes of the novel classes are unknown
            requested["prior"] = "uniform"
        if self.minutes is None and self._makes_steps():
            if self.steps is None:
                fewest = FEWEST_STEPS_OF_FEATURES if dataset.has_features else FEWEST_STEPS_OF_IMAGES
                requested["steps"] = min(max(fewest, len(numbers) // SAMPLES_PER_STEP), MOST_STEPS)
            requested["epoch_steps"] = max(EPOCH_STEPS, -(-requested["steps"] // EPOCHS))
        return {name: value for name, value in {**requested, **settings}.items() if value is not None}

    def _makes_steps(self) -> bool:
        """Return whether the method has training steps. An unknown method raises an error later."""
        return self.method not in METHODS or METHODS[self.method].method().makes_steps

    def _apply(self, function: Callable[[Tensor], Tensor], X: Any) -> np.ndarray:
        """Return the results of a function of the model for all samples, computed in chunks."""
        shape = self.model_.sample_shape
        with _scikit_learn_errors():
            content = _checked_content(self, X, reset=False)
            _refuse_misfit(content, shape)
            runtime = make_runtime(self.device, workers=(self.settings or {}).get("workers"), quiet=not self.verbose)
            part = Part(content, np.full(len(content), -1))
            loader = Loader(Dataset("X", (), part, None), shape[-1], "refuse", runtime)
            samples = loader.samples("train", range(len(content)))
            if self.model_.takes_images:
                return cat([function(chunk) for chunk in samples.chunks()]).cpu().numpy()
            return cat([_apply_to_full_batch(function, chunk) for chunk in samples.chunks(ROWS)]).cpu().numpy()


def _apply_to_full_batch(function: Callable[[Tensor], Tensor], chunk: Tensor) -> Tensor:
    """Fill the chunk up to ROWS rows before the call.

    The rounding of sums depends on the number of rows, but the result for a sample must not depend on other samples.
    """
    filler = chunk[:1].expand(ROWS - len(chunk), -1)
    return function(cat([chunk, filler]))[: len(chunk)]


@contextmanager
def _scikit_learn_errors() -> Iterator[None]:
    """Turn a UserError into a ValueError that names parameters, and Ctrl-C into a KeyboardInterrupt.

    A KeyboardInterrupt stops all folds of a cross-validation, not only the current one.
    """
    try:
        with called_from_python():
            yield
    except UserError as error:
        raise ValueError(str(error)) from None
    except Interrupted:
        raise KeyboardInterrupt from None


def _seed(random_state: Any) -> int:
    if isinstance(random_state, (int, np.integer)):
        return random_state
    return int(np.random.default_rng(random_state).integers(2**31))


# Input ----------------------------------------------------------------------------------------------------------


def _checked_labels(y: Any) -> np.ndarray:
    """Return (N,) labels, all numbers or all strings. In object arrays -1 may be among strings, as in scikit-learn."""
    if isinstance(y, (list, tuple)) and any(isinstance(label, str) for label in y):
        y = np.array(y, dtype=object)  # otherwise numpy turns -1 into the string "-1"
    labels = column_or_1d(y, warn=True)
    if labels.dtype == object:
        is_missing = np.array([str(label) in MISSING and not isinstance(label, str) for label in labels])
        are_strings = {isinstance(label, str) for label in labels[~is_missing]}
        if len(are_strings) > 1:
            raise ValueError("y: some labels are strings and others are not; use one kind only")
        labels = np.array(np.where(is_missing, "" if True in are_strings else -1, labels).tolist())
    assert_all_finite(labels, input_name="y")
    return labels


def _numbered(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the seen classes, sorted, and (N,) the class number of each label, -1 for unlabelled."""
    is_text = labels.dtype.kind == "U"
    is_labelled = np.array([not is_unlabelled(label) for label in labels]) if is_text else labels != -1
    check_classification_targets(labels[is_labelled])
    known, inverse = np.unique(labels[is_labelled], return_inverse=True)
    if len(known) < 2:
        found = f"only one class ({known[0]})" if len(known) else "no labelled sample"
        raise ValueError(f"y contains {found}; at least 2 labelled classes are needed (-1 or '' means unlabelled)")
    numbers = np.full(len(labels), -1)
    numbers[is_labelled] = inverse
    return known, numbers


def _checked_content(estimator: OpenWorldClassifier, X: Any, reset: bool) -> np.ndarray | Files:
    """Return X as image files, as images, or as features that scikit-learn has checked."""
    X = X if hasattr(X, "ndim") else np.asarray(X)
    if X.ndim == 1 and len(X) and all(isinstance(item, (str, os.PathLike)) for item in X):
        return _files(X)
    if X.ndim in (3, 4):
        return checked_samples("X", "images", X)
    return validate_data(estimator, X, dtype=np.float32, reset=reset)


def _files(paths: Any) -> Files:
    paths = [os.path.abspath(path) for path in paths]
    odd = next((path for path in paths if not is_utf8(path)), None)
    if odd is not None:
        raise ValueError(f"X: the file name {odd!a} is not valid UTF-8; rename the file")
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    return Files(Path(root), tuple(os.path.relpath(path, root) for path in paths))


def _dataset(content: np.ndarray | Files, numbers: np.ndarray, known: np.ndarray) -> Dataset:
    """Return the data set. If every sample has a label, add an unlabelled copy of each: training needs such samples."""
    class_sizes: tuple[int, ...] = ()
    if (numbers >= 0).all():
        class_sizes = tuple((2 * np.bincount(numbers)).tolist())
        content = content[np.tile(np.arange(len(numbers)), 2)]
        numbers = np.concatenate([numbers, np.full(len(numbers), -1)])
    names, part = tuple(map(str, known.tolist())), Part(content, numbers)
    return Dataset("X", names, part, None, is_labelled=numbers >= 0, class_sizes=class_sizes)


def _refuse_misfit(content: np.ndarray | Files, shape: tuple[int, ...]) -> None:
    """Raise a ValueError if the kind of samples, or the number of channels, differs from training.

    Images of another size are accepted, because they are resized.
    """
    channels = None if len(shape) == 1 else shape[0]
    found = 3 if isinstance(content, Files) else None if content.ndim == 2 else content.shape[-1]
    if found != channels:
        kinds = ["features" if count is None else f"images of {count} channels" for count in (found, channels)]
        raise ValueError(f"X contains {kinds[0]}, but OpenWorldClassifier was fitted on {kinds[1]}")


# Output ---------------------------------------------------------------------------------------------------------


def _all_classes(known: np.ndarray, novel_names: tuple[str, ...]) -> np.ndarray:
    """Append the novel classes to the seen ones: by name if labels are strings, else as the next numbers."""
    if not novel_names:
        return known
    if known.dtype.kind == "U":
        return np.concatenate([known, novel_names])
    first = max(int(known[-1]), -1) + 1
    last = first + len(novel_names) - 1
    # Small integer types may have to be widened. A type of another kind would turn large integers into floats
    needed = np.min_scalar_type(last if known.dtype.kind == "u" else -last - 1)
    return np.concatenate([known, np.arange(first, last + 1)]).astype(np.result_type(known, needed))
