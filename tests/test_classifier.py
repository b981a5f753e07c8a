"""OpenWorldClassifier, the classifier for scikit-learn."""

import copy
import gc
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from worlds import write_photos

import openworld
from openworld.classifier import OpenWorldClassifier, _all_classes, _checked_labels, _numbered
from openworld.core.signals import Interrupted
from openworld.data.decode import resize_images
from openworld.runs.folder import RunFolder
from openworld.training.learner import Learner

QUICK = {"uncertainty_views": 2, "workers": 0}
DOCS = Path(__file__).parent.parent / "docs" / "python.md"

EXPECTED_TO_FAIL = {
    "check_classifiers_classes": "takes -1 for a class in its last problem; here, as in scikit-learn's semi-supervised "
    "estimators, it means unlabelled. Its other problems are in test_labels_of_any_kind_come_back",
}
# scikit-learn itself skips check_array_api_input unless SCIPY_ARRAY_API=1 is set; with it, the check passes.


def quick(num_classes=None, steps=20, **parameters) -> OpenWorldClassifier:
    return OpenWorldClassifier(num_classes, steps=steps, device="cpu", settings=QUICK, **parameters)


def heaps(num_classes: int = 3, samples: int = 90) -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(samples, centers=num_classes, cluster_std=0.5, random_state=1)


def half_known(y: np.ndarray, num_seen: int) -> np.ndarray:
    """Hide every other label, and all labels of the classes from `num_seen` on."""
    return np.where((y < num_seen) & (np.arange(len(y)) % 2 == 0), y, -1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:already fitted:UserWarning")
@parametrize_with_checks(
    [quick(steps=20)], expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL, xfail_strict=True
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


# What it learns


@pytest.mark.slow
def test_classes_that_nobody_labelled_are_found():
    """The mean counts: with so few steps, one seed finds 54 to 78% of the novel samples."""
    digits = load_digits()
    train, test = np.arange(0, 1200), np.arange(1200, 1797)
    labels = half_known(digits.target, 5)[train]
    truth = digits.target[test]
    seen = truth < 5
    found = []
    for seed in range(3):
        model = quick(10, steps=150, random_state=seed).fit(digits.data[train], labels)
        assert model.classes_.tolist() == list(range(10))
        assert model.n_seen_classes_ == 5
        predicted = model.predict(digits.data[test])
        assert (predicted == truth)[seen].mean() > 0.9
        counts = np.zeros((5, 5))
        np.add.at(counts, (truth[~seen & (predicted >= 5)] - 5, predicted[~seen & (predicted >= 5)] - 5), 1)
        found.append(counts[linear_sum_assignment(-counts)].sum() / (~seen).sum())
    assert np.mean(found) > 0.6


@pytest.mark.slow
def test_where_all_is_labelled_it_is_an_ordinary_classifier():
    digits = load_digits()
    scores = cross_val_score(quick(steps=100), digits.data[:900], digits.target[:900], cv=2)
    assert scores.min() > 0.8  # logistic regression: 0.87


@pytest.mark.slow
def test_rare_classes_stay_rare():
    """If all labels are known, the class proportions are counted."""
    X, y = make_classification(800, 10, n_informative=5, weights=[0.9], class_sep=0.7, random_state=0)
    model = quick(steps=100).fit(X[:500], y[:500])
    assert model.score(X[500:], y[500:]) > 0.88  # with equal shares 0.73


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model():
    X, y = heaps()
    labels = half_known(y, 2)
    shares = [quick(3, random_state=seed).fit(X, labels).predict_proba(X) for seed in (1, 1, 2)]
    assert np.array_equal(shares[0], shares[1])
    assert not np.allclose(shares[0], shares[2])
    drawn = [quick(3, random_state=np.random.RandomState(5)).fit(X, labels).summary_["seed"] for _ in range(2)]
    assert drawn[0] == drawn[1] > 0
    assert len({quick(3, steps=1, random_state=None).fit(X, labels).summary_["seed"] for _ in range(2)}) == 2


def test_the_default_length_follows_from_the_number_of_samples(monkeypatch):
    requested = {}

    def note(dataset, **settings):
        requested.update(settings)
        raise openworld.core.errors.UserError("enough")

    monkeypatch.setattr("openworld.classifier.train_on", note)
    for count, steps in ((100, 300), (4000, 1000), (40_000, 3000)):
        with pytest.raises(ValueError, match="enough"):
            OpenWorldClassifier().fit(np.zeros((count, 1)), np.arange(count) % 2)
        assert (requested["steps"], requested["epoch_steps"]) == (steps, steps // 10)
    with pytest.raises(ValueError, match="enough"):
        OpenWorldClassifier().fit(np.zeros((100, 8, 8), np.uint8), np.arange(100) % 2)
    assert requested["steps"] == 800
    requested.clear()
    with pytest.raises(ValueError, match="enough"):
        OpenWorldClassifier(minutes=2).fit(np.zeros((9, 1)), np.arange(9) % 2)
    assert requested["minutes"] == 2
    assert not {"steps", "epoch_steps"} & set(requested)


@pytest.mark.slow
def test_the_number_of_classes():
    X, y = heaps(4, 200)
    assert len(quick(steps=1).fit(X, half_known(y, 2)).classes_) == 4  # as many new as known
    assert len(quick("auto", steps=1).fit(X, half_known(y, 3)).classes_) == 4
    all_labelled = quick("auto", steps=1).fit(X, y)
    assert len(all_labelled.classes_) == 4
    assert not all_labelled.summary_["num_classes_estimated"]
    assert len(quick(6, steps=1).fit(X, y).classes_) == 6
    with pytest.raises(ValueError, match=r"^num_classes=2 is fewer than the 4 seen classes"):
        quick(2).fit(X, y)


# Labels


@pytest.mark.parametrize(
    ("y", "known", "numbers"),
    [
        ([3, -1, 7], [3, 7], [0, -1, 1]),
        (["b", "", "a", " "], ["a", "b"], [1, -1, 0, -1]),
        (np.array(["b", None, "a", np.nan, -1], object), ["a", "b"], [1, -1, 0, -1, -1]),
        (np.array([2, None, 4], object), [2, 4], [0, -1, 1]),
        ([2.0, -1.0, 4.0], [2.0, 4.0], [0, -1, 1]),
        ([True, False], [False, True], [1, 0]),
    ],
)
def test_labels_are_numbered(y, known, numbers):
    found = _numbered(_checked_labels(y))
    assert (found[0].tolist(), found[1].tolist()) == (known, numbers)


def test_minus_one_among_strings_is_unlabelled():
    known, numbers = _numbered(_checked_labels(np.array(["cat", -1, "dog"])))
    assert (known.tolist(), numbers.tolist()) == (["cat", "dog"], [0, -1, 1])


def test_missing_labels_of_pandas():
    pandas = pytest.importorskip("pandas")
    assert _numbered(_checked_labels(pandas.Series(["b", None, "a"])))[1].tolist() == [1, -1, 0]
    assert _numbered(_checked_labels(pandas.Series([5, pandas.NA, 3], dtype=object)))[1].tolist() == [1, -1, 0]
    with pytest.raises(ValueError, match="Input y contains NaN"):  # as scikit-learn wants it of numbers
        _checked_labels(pandas.Series([5, pandas.NA, 3], dtype="Int64"))


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (np.array([3, 7]), np.array([3, 7, 8, 9])),
        (np.array([1, 255], np.uint8), np.array([1, 255, 256, 257], np.uint16)),
        (np.array([0, 126], np.int8), np.array([0, 126, 127, 128], np.int16)),
        (np.array([-5, -3]), np.array([-5, -3, 0, 1])),
        (np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0, 4.0])),
        (np.array(["a", "bb"]), np.array(["a", "bb", "novel-1", "novel-2"])),
    ],
)
def test_new_classes_follow_the_known_ones(known, expected):
    classes = _all_classes(known, ("novel-1", "novel-2"))
    assert classes.dtype == expected.dtype
    assert np.array_equal(classes, expected)
    assert _all_classes(known, ()) is known


@pytest.mark.slow
@pytest.mark.parametrize("names", [np.array(["one", "two", "three"]), np.array(["one", "two", "three"], object)])
def test_labels_of_any_kind_come_back(names):
    X, y = heaps()
    for count in (2, 3):
        model = quick().fit(X[y < count], names[y[y < count]])
        assert model.classes_.tolist() == sorted(names[:count])
        assert np.array_equal(model.predict(X[y < count]), names[y[y < count]])


def test_a_label_that_looks_like_a_new_class():
    X, y = heaps()
    names = np.array(["cat", "novel-1", ""])[y]
    model = quick(4).fit(X, names)
    assert model.classes_.tolist() == ["cat", "novel-1", "novel-2", "novel-3"]
    assert model.predict_proba(X).shape == (90, 4)


# Input


def test_images_are_resized_as_in_training():
    X, y = load_digits(return_X_y=True)
    images = (X.reshape(-1, 8, 8)[:60] * 15).astype(np.uint8)
    model = quick(steps=5).fit(images, half_known(y[:60], 5))
    assert not hasattr(model, "n_features_in_")
    large = resize_images(images[..., None], 16)
    assert np.array_equal(model.predict_proba(large), model.predict_proba(resize_images(large, 8)))
    for wrong, found in ((np.stack([images] * 3, axis=-1), "images of 3 channels"), (X, "features")):
        with pytest.raises(ValueError, match=f"X contains {found}, but .* was fitted on images of 1 channels"):
            model.predict(wrong)
    with pytest.raises(ValueError, match="images are float64; they must be uint8"):
        model.predict(images / 255)


def test_paths():
    root = write_photos(Path("photos"), labelled=8)
    paths = sorted(root.glob("labelled/*/*")) + sorted(root.glob("unlabelled/*/*"))
    labels = [path.parent.name if "unlabelled" not in path.parts else "" for path in paths]
    model = quick(3, steps=5).fit(paths, labels)
    assert model.classes_.tolist() == ["cat", "dog", "novel-1"]
    pixels = np.stack([np.asarray(Image.open(path)) for path in paths[:9]])
    for same in (paths[:9], [str(path) for path in paths[:9]], np.array(paths[:9]), [paths[0].absolute(), *paths[1:9]]):
        assert np.allclose(model.predict_proba(same), model.predict_proba(pixels), atol=1e-6)
    (root / "note.png").write_text("no image")
    with pytest.raises(ValueError, match=r"note\.png is not an image"):
        model.predict([root / "note.png"])
    all_labelled = quick(steps=2).fit(paths[:16], labels[:16])
    assert all_labelled.classes_.tolist() == ["cat", "dog"]


def test_mistakes():
    X, y = heaps()
    with pytest.raises(NotFittedError):
        quick().predict(X)
    for wrong, message in (
        ([-1] * 90, "no labelled sample; at least 2"),
        ([1] * 90, r"only one class \(1\)"),
        (np.array([1, "a"] * 45, object), "some labels are strings"),
        (y[:-1], "inconsistent numbers of samples"),
    ):
        with pytest.raises(ValueError, match=message):
            quick().fit(X, wrong)
    for parameters, message in (
        ({"num_classes": 2.5}, "num_classes is 2.5; it must be"),
        ({"steps": 0}, "steps is 0; it must be 1 or more"),
        ({"steps": 1, "minutes": 1.0}, "minutes and steps both"),
        ({"device": "tpu"}, "device='tpu': .*auto, cpu"),
        ({"settings": {"temprature": 1}}, "did you mean temperature"),
        ({"settings": {"steps": 1}}, "settings: steps .* parameter steps"),
        ({"method": "magic"}, "method is 'magic'"),
    ):
        with pytest.raises(ValueError, match=message):
            OpenWorldClassifier(**parameters).fit(X, y)


# With tools of scikit-learn


@pytest.mark.slow
def test_a_pipeline_and_a_grid():
    X, y = heaps(8, 240)  # so many classes that one step is not enough
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), quick()), {"openworldclassifier__steps": np.array([1, 20])}, cv=2
    )
    grid.fit(X * [1, 1000], y)
    assert grid.best_params_ == {"openworldclassifier__steps": 20}
    assert grid.best_estimator_.predict(X[:3] * [1, 1000]).tolist() == y[:3].tolist()


def test_parameters_are_kept_as_given():
    parameters = {"num_classes": "auto", "minutes": 2, "out": Path("x"), "settings": {"lr": 0.1}, "random_state": None}
    model = clone(OpenWorldClassifier(**parameters))
    assert {name: model.get_params()[name] for name in parameters} == parameters


@pytest.mark.slow
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_answers_when_the_original_is_gone(copied):
    X, y = heaps()
    model = quick(3).fit(X, half_known(y, 2))
    shares, features, folder = model.predict_proba(X), model.transform(X), Path(model.run_)
    assert RunFolder(folder).summary() == model.summary_
    assert b"torch" not in pickle.dumps(model)  # plain bytes: no code of ours or torch's decides what they become
    other = copied(model)
    del model
    gc.collect()
    assert not folder.exists()
    assert np.array_equal(other.predict_proba(X), shares)
    assert np.array_equal(other.transform(X), features)
    assert np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_fitting_again_starts_anew_and_loses_no_run():
    X, y = heaps()
    model = quick(out="run").fit(X, y)
    with pytest.warns(UserWarning, match="already") as warned:
        model.fit(X[:, :1], half_known(y, 2))
    assert len(warned) == 2
    assert "already fitted" in str(warned[0].message)
    assert str(warned[1].message).startswith("run already contains a run")
    assert str(warned[1].message).endswith("run-2")
    assert warned[0].filename == warned[1].filename == __file__
    assert model.run_ == "run-2"
    assert model.n_features_in_ == 1
    assert RunFolder(Path("run")).summary()["num_classes"] == 3
    Path("letters").mkdir()
    Path("letters/mine").touch()
    with pytest.raises(ValueError, match=r"letters exists but is not a run .*another out"):
        quick(out="letters").fit(X, y)
    temporary = quick(steps=1).fit(X, y)
    first = temporary.run_
    with pytest.warns(UserWarning, match="already fitted"):
        temporary.fit(X, y)
    assert not Path(first).exists()


@pytest.mark.slow
def test_training_that_was_stopped(monkeypatch):
    X, y = heaps()
    learn = Learner.learn

    def stop(self):
        learn(self)
        raise Interrupted(2, "stopped")

    model = quick(out="run")
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "learn", stop)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.warns(UserWarning, match="run already contains a run.* run-2"):
        model.fit(X, y)


# For users


def test_importing_the_package_imports_neither_torch_nor_scikit_learn():
    code = "import sys, openworld; assert not {'torch', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert openworld.OpenWorldClassifier is OpenWorldClassifier


@pytest.mark.slow
def test_the_documentation_runs(capsys):
    names = {}
    for snippet in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL):
        exec(snippet.replace("steps=60", "steps=5"), names)
    assert names["model"].classes_.tolist() == list(range(10))
    assert names["summary"]["run"] == "digits-run"
    assert "digits-run" in capsys.readouterr().out


def test_a_list_of_strings_may_mark_the_unlabelled_by_a_number():
    model = OpenWorldClassifier(num_classes=3, steps=5, device="cpu")
    model.fit(np.random.default_rng(0).normal(size=(30, 3)), ["cat"] * 5 + ["dog"] * 5 + [-1] * 20)
    assert model.classes_.tolist() == ["cat", "dog", "novel-1"]


def test_large_labels_stay_whole_numbers():
    model = OpenWorldClassifier(num_classes=3, steps=5, device="cpu")
    model.fit(np.random.default_rng(0).normal(size=(30, 3)), [1] * 5 + [2**53] * 5 + [-1] * 20)
    assert model.classes_.tolist() == [1, 2**53, 2**53 + 1]
