"""`OpenWorldClassifier`: the engine behind scikit-learn's conventions. What is trained is a run like any other."""

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
"""Length of a fit that is not told how long: a step for so many samples, within these bounds (digits: docs/python.md).
It does not hang on the clock, so that a fit can be repeated."""
EPOCHS, EPOCH_STEPS = 10, 25
"""Of a fit; but no epoch is shorter than so many steps."""

ROWS = 256
"""Of features that pass through the network together."""

MISSING = ("None", "nan", "<NA>", "-1")
"""What objects that stand for no label look like."""


class OpenWorldClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):
    """A classifier that learns from few labels, and finds the classes that nobody labelled.

    It is `openworld train` in scikit-learn's clothes: labels of -1 (or '') mark the samples whose class is not known,
    and which may belong to classes without any label. Those come out as classes of their own. Where every sample has
    a label it is an ordinary classifier, which can do without the rest; others do that as well, and faster.

    Parameters
    ----------
    num_classes : int, "auto" or None, default=None
        All classes, known and new. None: as many new ones as known ones, or none where every sample has a label.
        "auto": estimated first; for images that takes a minute and a half longer, and is a rough guess.
    method : str or None, default=None
        How to train: what ``openworld train --method`` offers. None: the paper's, ``"trssl"``, or that of the recipe in
        ``settings``.
    steps, minutes : int and float, default=None
        How long to train; give one of them. With neither, a step for every 4 samples, but at least 300 for features
        and 800 for images, and at most 3,000: seconds for features, minutes for thousands of images on a CPU. With
        ``minutes`` the number of steps hangs on the speed of the machine, and two fits are no longer the same.
    device : "auto", "cpu" or "cuda", default="auto"
        Where to train, and to predict.
    random_state : int, numpy generator or None, default=0
        The seed of everything random. On a CPU the same seed gives the same model. None: another one each time.
    out : path or None, default=None
        The run folder, for ``openworld report`` and the like. If a run is there already it is left alone, and the new
        one goes to ``out-2``, ``out-3``, ... None: a temporary folder, removed together with the estimator.
    verbose : bool, default=False
        Whether to show progress.
    settings : dict or None, default=None
        Whatever else ``openworld train --help`` lists, with underscores: ``{"lr": 0.1, "workers": 0}``.

    Attributes
    ----------
    classes_ : (M,) array
        The known labels, sorted, then the new classes: for numbers those after the largest label, for strings
        "novel-1", "novel-2", ...
    n_seen_classes_ : int
        How many of them were known.
    n_features_in_ : int
        Columns of X, where X holds features.
    summary_ : dict
        The run's summary.json.
    run_ : str
        The run folder. A copy or a pickle answers without it.

    Notes
    -----
    ``fit`` always starts anew, and warns if that forgets what was learnt before, or if ``out`` holds a run, finished or
    not: training that was stopped is not taken up again. Where every sample has a label, the shares of the classes are
    those of the labels; else new and known classes are taken to be equally frequent among the unlabelled samples.

    Examples
    --------
    Three heaps of points, of which one has no label:

    >>> import numpy as np
    >>> from openworld import OpenWorldClassifier
    >>> draw = np.random.default_rng(0)
    >>> X = np.concatenate([draw.normal(centre, 0.3, (40, 2)) for centre in ([0, 0], [4, 0], [0, 4])])
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
        self.method = method
        self.steps = steps
        self.minutes = minutes
        self.device = device
        self.random_state = random_state
        self.out = out
        self.verbose = verbose
        self.settings = settings

    def fit(self, X: Any, y: Any) -> "OpenWorldClassifier":
        """Learn from samples, of which some have a label.

        Parameters
        ----------
        X : (N, D) features, (N, H, W) or (N, H, W, C) uint8 images, or N paths of image files
        y : (N,) labels
            -1, or '' among strings, is unlabelled; in object arrays None and NaN, too.
        """
        if hasattr(self, "model_"):
            warnings.warn("fitted before: what was learnt is forgotten, training starts anew", stacklevel=2)
        self._forget()
        with _in_words_of_scikit_learn():
            labels = _checked_labels(y)
            content = _checked_content(self, X, reset=True)
            check_consistent_length(content, labels)
            known, numbers = _numbered(labels)
            dataset = _dataset(content, numbers, known)
            self.summary_ = train_on(dataset, out=self._new_folder(), **self._asked(dataset, numbers))
            self._packed_ = PackedModel.of(RunFolder(Path(self.summary_["run"])))
            self.model_ = self._packed_.model(pick_device(self.device))
        self.run_ = self.summary_.pop("run")
        self.classes_ = _all_classes(known, self.model_.classes.names[len(known) :])
        self.n_seen_classes_ = len(known)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(N,) the most probable class of each sample, known or new."""
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, M) the probability of each class, in the order of ``classes_``."""
        check_is_fitted(self, "model_")
        shares = self._answers(X, self.model_.probabilities).astype(np.float64)
        return shares / shares.sum(axis=1, keepdims=True)

    def transform(self, X: Any) -> np.ndarray:
        """(N, F) unit vectors: what the network makes of samples before it tells classes apart."""
        check_is_fitted(self, "model_")
        return self._answers(X, self.model_.features)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The model goes along as the files that it was loaded from; a temporary run folder stays behind."""
        return {name: value for name, value in super().__getstate__().items() if name not in ("model_", "_remove_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if isinstance(state.get("_packed_"), dict):  # as it was pickled before there was a PackedModel
            texts = (state["_packed_"][name] for name in ("config.toml", "split.json", "average"))
            self._packed_ = PackedModel(*texts, step=self.summary_["steps"])
        if "_packed_" in state:
            self.model_ = self._packed_.model(pick_device(self.device))

    def _forget(self) -> None:
        """What an earlier fit left behind."""
        if hasattr(self, "_remove_"):
            self._remove_()
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _new_folder(self) -> Path:
        """Where no run is yet."""
        if self.out is None:
            folder = Path(tempfile.mkdtemp(prefix="openworld-"))
            self._remove_ = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            return folder
        out = Path(self.out)
        others = (out.with_name(f"{out.name}-{number}") for number in itertools.count(2))
        free = next(folder for folder in itertools.chain([out], others) if not RunFolder(folder).exists)
        if free != out:
            warnings.warn(f"{out} holds a run, which is left alone: training starts anew in {free}", stacklevel=3)
        return free

    def _asked(self, dataset: Dataset, numbers: np.ndarray) -> dict[str, Any]:
        """What `train_on` is told."""
        settings, num_known, all_labelled = self.settings or {}, int(numbers.max()) + 1, bool((numbers >= 0).all())
        requested = {
            "num_classes": self.num_classes,
            "method": self.method,
            "steps": self.steps,
            "minutes": self.minutes,
            "device": self.device,
            "seed": _seed(self.random_state),
            "quiet": not self.verbose,
        }
        twice = settings.keys() & {*requested, "out"}
        if twice:
            raise ValueError(f"settings: {min(twice)} is a parameter of its own")
        if all_labelled and self.num_classes in (None, "auto"):  # there is nothing new to find
            requested["num_classes"] = num_known
        if all_labelled and requested["num_classes"] != num_known:  # of which the new ones were not counted
            requested["prior"] = "uniform"
        if self.minutes is None and self._makes_steps():
            if self.steps is None:
                fewest = FEWEST_STEPS_OF_FEATURES if dataset.has_features else FEWEST_STEPS_OF_IMAGES
                requested["steps"] = min(max(fewest, len(numbers) // SAMPLES_PER_STEP), MOST_STEPS)
            requested["epoch_steps"] = max(EPOCH_STEPS, -(-requested["steps"] // EPOCHS))
        return {name: value for name, value in {**requested, **settings}.items() if value is not None}

    def _makes_steps(self) -> bool:
        """Whether there is a length to be chosen; an unknown method is refused by whoever looks for it."""
        return self.method not in METHODS or METHODS[self.method].method().makes_steps

    def _answers(self, X: Any, answer: Callable[[Tensor], Tensor]) -> np.ndarray:
        shape = self.model_.sample_shape
        with _in_words_of_scikit_learn():
            content = _checked_content(self, X, reset=False)
            _refuse_misfit(content, shape)
            runtime = make_runtime(self.device, workers=(self.settings or {}).get("workers"), quiet=not self.verbose)
            part = Part(content, np.full(len(content), -1))
            loader = Loader(Dataset("X", (), part, None), shape[-1], "refuse", runtime)
            samples = loader.samples("train", range(len(content)))
            if self.model_.takes_images:
                return cat([answer(chunk) for chunk in samples.chunks()]).cpu().numpy()
            return cat([_in_full_rows(answer, chunk) for chunk in samples.chunks(ROWS)]).cpu().numpy()


def _in_full_rows(answer: Callable[[Tensor], Tensor], chunk: Tensor) -> Tensor:
    """As if there were always as many: how sums are rounded hangs on that, and no answer shall hang on its company."""
    filler = chunk[:1].expand(ROWS - len(chunk), -1)
    return answer(cat([chunk, filler]))[: len(chunk)]


@contextmanager
def _in_words_of_scikit_learn() -> Iterator[None]:
    """Bad input is a ValueError that names parameters; and who presses Ctrl-C means all folds, not only this one."""
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


# What comes in --------------------------------------------------------------------------------------------------


def _checked_labels(y: Any) -> np.ndarray:
    """(N,) numbers, or strings; in an array of objects -1 may stand among strings, as scikit-learn has it elsewhere."""
    if isinstance(y, (list, tuple)) and any(isinstance(label, str) for label in y):
        y = np.array(y, dtype=object)  # or numpy would take -1 among strings for the name "-1"
    labels = column_or_1d(y, warn=True)
    if labels.dtype == object:
        is_missing = np.array([str(label) in MISSING and not isinstance(label, str) for label in labels])
        are_strings = {isinstance(label, str) for label in labels[~is_missing]}
        if len(are_strings) > 1:
            raise ValueError("y: some labels are strings, others are not; use one of the two")
        labels = np.array(np.where(is_missing, "" if True in are_strings else -1, labels).tolist())
    assert_all_finite(labels, input_name="y")
    return labels


def _numbered(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The known classes, sorted; and (N,) their numbers, -1 for unlabelled."""
    is_text = labels.dtype.kind == "U"
    is_labelled = np.array([not is_unlabelled(label) for label in labels]) if is_text else labels != -1
    check_classification_targets(labels[is_labelled])
    known, inverse = np.unique(labels[is_labelled], return_inverse=True)
    if len(known) < 2:
        found = f"only one class ({known[0]})" if len(known) else "no labelled sample"
        raise ValueError(f"y: there is {found}; at least 2 classes are needed, and -1 or '' means unlabelled")
    numbers = np.full(len(labels), -1)
    numbers[is_labelled] = inverse
    return known, numbers


def _checked_content(estimator: OpenWorldClassifier, X: Any, reset: bool) -> np.ndarray | Files:
    """Image files, images, or features by scikit-learn's own rules."""
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
    """Where every sample has a label, all are there twice: the engine wants unlabelled ones, too."""
    class_sizes: tuple[int, ...] = ()
    if (numbers >= 0).all():
        class_sizes = tuple((2 * np.bincount(numbers)).tolist())
        content = content[np.tile(np.arange(len(numbers)), 2)]
        numbers = np.concatenate([numbers, np.full(len(numbers), -1)])
    names, part = tuple(map(str, known.tolist())), Part(content, numbers)
    return Dataset("X", names, part, None, is_labelled=numbers >= 0, class_sizes=class_sizes)


def _refuse_misfit(content: np.ndarray | Files, shape: tuple[int, ...]) -> None:
    """Images of another size are resized; what is of another kind is no use."""
    channels = None if len(shape) == 1 else shape[0]
    found = 3 if isinstance(content, Files) else None if content.ndim == 2 else content.shape[-1]
    if found != channels:
        kinds = ["features" if count is None else f"images of {count} channels" for count in (found, channels)]
        raise ValueError(f"X holds {kinds[0]}, but OpenWorldClassifier was fitted on {kinds[1]}")


# What goes out --------------------------------------------------------------------------------------------------


def _all_classes(known: np.ndarray, novel_names: tuple[str, ...]) -> np.ndarray:
    """The new classes after the known ones: by name, or the numbers that follow."""
    if not novel_names:
        return known
    if known.dtype.kind == "U":
        return np.concatenate([known, novel_names])
    first = max(int(known[-1]), -1) + 1
    last = first + len(novel_names) - 1
    # small integers may have to widen; by a type of the same kind, or large ones would become floats
    needed = np.min_scalar_type(last if known.dtype.kind == "u" else -last - 1)
    return np.concatenate([known, np.arange(first, last + 1)]).astype(np.result_type(known, needed))
