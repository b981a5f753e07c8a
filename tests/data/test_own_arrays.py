"""User data in data frames and arrays, and a clear error message for each mistake in it."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from own_data import IMAGES, message, names_of_labels, put

from openworld.core.errors import UserError
from openworld.data.dataset import Files
from openworld.data.own import from_arrays, from_frame, read_own


class Frame(dict):
    """The parts of a data frame that openworld needs."""

    @property
    def columns(self):
        return list(self)


class Missing:
    """Like pandas.NA, which is neither true nor false."""

    def __bool__(self):
        raise TypeError

    def __eq__(self, other):
        return self

    __ne__ = __eq__

    def __repr__(self):
        return "<NA>"


class TestFrame:
    @pytest.mark.parametrize("missing", [None, float("nan"), np.float64("nan"), Missing(), "", -1, -1.0])
    def test_missing_labels_are_unlabelled(self, tmp_path, missing):
        root = put(tmp_path / "pets", *IMAGES)
        frame = Frame(extra=[0, 0, 0], label=["dog", missing, "cat"], path=["a.png", "b.png", Path("deep/c.png")])
        dataset = from_frame(frame, root)
        assert dataset.name == "pets"
        assert names_of_labels(dataset) == ["dog", None, "cat"]
        assert dataset.train.content == Files(root, ("a.png", "b.png", "deep/c.png"))

    def test_minus_one_is_no_class_of_numbers_either(self, tmp_path):
        frame = Frame(path=["a.png", "b.png", "deep/c.png"], label=[7, -1, 8])
        assert names_of_labels(from_frame(frame, put(tmp_path, *IMAGES))) == ["7", None, "8"]

    def test_numbers_have_no_point(self, tmp_path):
        frame = Frame(path=["a.png", "b.png", "deep/c.png"], label=[7.0, float("nan"), np.int64(8)])
        assert from_frame(frame, put(tmp_path, *IMAGES)).class_names == ("7", "8")

    def test_the_root_is_the_working_directory(self, tmp_path):
        put(tmp_path, *IMAGES)  # the working directory of the test
        dataset = from_frame(Frame(path=["a.png", "b.png"], label=["nan", "None"], split=["train", "train"]))
        assert dataset.class_names == ("None", "nan")
        assert dataset.is_labelled is None

    @pytest.mark.parametrize(
        ("frame", "place", "fragment"),
        [
            (Frame(path=["a.png"]), "", "column label is missing"),
            (Frame(), "", "column path is missing"),
            (Frame(path=[], label=[]), "", "no rows"),
            (Frame(path=["a.png", "x.png"], label=[1, 2]), ", row 1", "no file x.png in"),
            (Frame(path=["a.png"], label=[None], split=["labelled"]), ", row 0", "split is labelled"),
        ],
    )
    def test_what_is_wrong(self, tmp_path, frame, place, fragment):
        with pytest.raises(UserError) as caught:
            from_frame(frame, put(tmp_path, *IMAGES))
        assert str(caught.value).startswith(f"the data frame{place}: ")
        assert fragment in str(caught.value)

    def test_pandas(self, tmp_path):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"path": ["a.png", "b.png", "deep/c.png"], "label": [1, 2, None]})
        assert names_of_labels(from_frame(frame, put(tmp_path, *IMAGES))) == ["1", "2", None]


def gray(count: int, *rest: int) -> np.ndarray:
    return np.zeros((count, *(rest or (4, 4))), np.uint8)


class TestArrays:
    @pytest.mark.parametrize(("shape", "kept"), [((6, 5), (6, 5, 1)), ((6, 5, 1), (6, 5, 1)), ((6, 5, 3), (6, 5, 3))])
    def test_images(self, shape, kept):
        images = np.random.default_rng(0).integers(0, 256, (3, *shape), dtype=np.uint8)
        dataset = from_arrays(images, [4, -1, 2])
        assert dataset.train.content.dtype == np.uint8
        assert np.array_equal(dataset.train.content, images.reshape(3, *kept))
        assert dataset.class_names == ("2", "4")
        assert dataset.train.labels.tolist() == [1, -1, 0]
        assert dataset.is_labelled.tolist() == [True, False, True]
        assert (dataset.name, dataset.test, dataset.has_features) == ("arrays", None, False)

    def test_alpha_is_composited_on_white(self):
        images = np.array([[[[10, 20, 30, 255]]], [[[10, 20, 30, 0]]]], np.uint8)
        assert from_arrays(images, [0, 1]).train.content.tolist() == [[[[10, 20, 30]]], [[[255, 255, 255]]]]

    @pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i8", "u1"])
    def test_features(self, dtype):
        features = np.arange(12).reshape(4, 3).astype(dtype)
        dataset = from_arrays(features, np.array([0, 1, 0, -1], np.int8))
        assert dataset.has_features
        assert dataset.train.content.dtype == np.float32
        assert np.array_equal(dataset.train.content, features)

    def test_strings(self):
        dataset = from_arrays(gray(4), ["dog", "", "cat", "dog"], gray(2), ["owl", "cat"])
        assert dataset.class_names == ("cat", "dog", "owl")
        assert names_of_labels(dataset) == ["dog", None, "cat", "dog"]
        assert names_of_labels(dataset, "test") == ["owl", "cat"]

    def test_minus_one_among_strings_is_unlabelled(self):
        dataset = from_arrays(np.eye(4), np.array(["cat", -1, "dog", "-1"]))
        assert names_of_labels(dataset) == ["cat", None, "dog", None]

    def test_all_labelled_is_a_benchmark_and_numbers_are_sorted_as_numbers(self):
        dataset = from_arrays(gray(4), [10, 9, 300, 9], gray(2), [2, 10], name="mine")
        assert dataset.is_labelled is None
        assert dataset.name == "mine"
        assert dataset.class_names == ("9", "10", "300", "2")
        assert names_of_labels(dataset) == ["10", "9", "300", "9"]
        assert names_of_labels(dataset, "test") == ["2", "10"]

    @pytest.mark.parametrize(
        ("arguments", "fragments"),
        [
            ((np.zeros((2, 4, 4)), [0, 1]), ["images are float64", "uint8", "0 to 255"]),
            ((gray(2, 3, 8, 8), [0, 1]), ["images", "(2, 3, 8, 8)", "(N, H, W, C)"]),
            ((gray(2, 8, 8, 2), [0, 1]), ["images", "(2, 8, 8, 2)", "(N, H, W, C)"]),
            ((gray(2, 0, 8), [0, 1]), ["images", "(2, 0, 8)", "(N, H, W, C)"]),
            ((gray(0, 8, 8), []), ["images", "(0, 8, 8)", "(N, H, W, C)"]),
            ((gray(8), [0, 1]), ["8 samples", "2 labels"]),
            ((gray(2, 1, 1, 1, 1), [0, 1]), ["images", "(2, 1, 1, 1, 1)", "(N, H, W, C)"]),
            ((np.uint8(3), [0, 1]), ["images", "shape ()", "(N, H, W, C)"]),
            ((np.zeros((2, 4), bool), [0, 1]), ["features are bool", "(2, 4)", "(N, D)"]),
            ((np.zeros((2, 4), complex), [0, 1]), ["features are complex128", "(2, 4)", "(N, D)"]),
            ((np.zeros((2, 0)), [0, 1]), ["features are float64", "(2, 0)", "(N, D)"]),
            (([[1, 2], [3, np.nan]], [0, 1]), ["features", "NaN", "row 1"]),
            (([[np.inf, 2], [3, 1]], [0, 1]), ["features", "infinity", "row 0"]),
            (([[1e39, 2], [3, 1]], [0, 1]), ["features", "float32", "row 0"]),
            ((gray(2), [0.0, 1.0]), ["labels are float64", "(2,)", "(N,)", "-1 for unlabelled"]),
            ((gray(2), [True, False]), ["labels are bool", "(2,)", "(N,)"]),
            ((gray(2), ["a", None]), ["labels are object", "(2,)", "(N,)"]),
            ((gray(2), [[0], [1]]), ["labels are int64", "(2, 1)", "(N,)"]),
            ((gray(2), [0, -2]), ["label is -2", "-1"]),
            ((gray(2), [-1, -1]), ["no class has", "at least 2"]),
            ((gray(1), [3]), ["only one class", "(3)", "at least 2"]),
            ((gray(2), ["cat", "Cat"]), ["'cat' and 'Cat' differ only in"]),
            ((gray(2), [0, 1], gray(2)), ["test part", "no labels"]),
            ((gray(2), [0, 1], None, [0]), ["test part", "no images"]),
            ((gray(2), [0, 1], gray(2, 5, 5), [0, 1]), ["images", "(4, 4, 1) in training", "(5, 5, 1) in the test"]),
            ((gray(2), [0, 1], gray(2), ["0", "1"]), ["labels", "numbers in one part", "strings in the other"]),
        ],
    )
    def test_what_is_wrong(self, arguments, fragments):
        with pytest.raises(UserError) as caught:
            from_arrays(*arguments, name="mine")
        assert str(caught.value).startswith("mine: ")
        for fragment in fragments:
            assert fragment in str(caught.value)

    @pytest.mark.parametrize(
        ("test", "test_labels", "fragments"),
        [
            (gray(2), [0, -1], ["sample 1 has no label"]),
            (gray(2), [0], ["2 samples", "1 labels"]),
            (np.zeros((2, 4, 4)), [0, 1], ["images are float64", "uint8"]),
        ],
    )
    def test_what_is_wrong_with_the_test_part(self, test, test_labels, fragments):
        with pytest.raises(UserError) as caught:
            from_arrays(gray(2), [0, 1], test, test_labels)
        assert str(caught.value).startswith("arrays, test part: ")
        for fragment in fragments:
            assert fragment in str(caught.value)


class TestNpz:
    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_images_with_a_test_part(self, tmp_path, save):
        path = tmp_path / "mine.npz"
        save(path, images=gray(3), labels=[5, -1, 3], test_images=gray(2), test_labels=[3, 9], comment="hello")
        dataset = read_own(path)
        assert dataset.name == "mine.npz"
        assert dataset.class_names == ("3", "5", "9")
        assert dataset.train.content.shape == (3, 4, 4, 1)
        assert names_of_labels(dataset) == ["5", None, "3"]
        assert names_of_labels(dataset, "test") == ["3", "9"]

    def test_features(self, tmp_path):
        path = tmp_path / "mine.NPZ"
        with path.open("wb") as file:
            np.savez(file, features=np.eye(3), labels=["a", "b", ""])
        assert read_own(path).has_features

    @pytest.mark.parametrize(
        ("arrays", "fragments"),
        [
            ({"labels": [0, 1]}, ["labels and either images or features", "(found: labels)"]),
            ({"images": gray(2)}, ["labels and either images or features", "(found: images)"]),
            ({}, ["labels and either images or features", "(found: nothing)"]),
            ({"x": gray(2), "y": [0, 1]}, ["labels and either images or features", "(found: x, y)"]),
            (
                {"images": gray(2), "features": np.ones((2, 2)), "labels": [0, 1]},
                ["labels and either images or features", "(found: images, features, labels)"],
            ),
            (
                {"images": gray(2), "labels": [0, 1], "test_features": np.ones((2, 2)), "test_labels": [0, 1]},
                ["labels and either images or features", "(found: images, labels, test_features, test_labels)"],
            ),
            ({"images": gray(2), "labels": [0, 1], "test_labels": [0]}, ["test part", "no images"]),
            ({"features": gray(2), "labels": [0, 1]}, ["features are uint8", "(2, 4, 4)", "(N, D)"]),
            ({"images": gray(2, 4), "labels": [0, 1]}, ["images", "(2, 4)", "(N, H, W, C)"]),
            ({"images": gray(2), "labels": np.array(["a", None])}, ["Python objects", "run code"]),
            ({"features": np.ones((3, 5)), "labels": [0, 1, -1]}, ["all features are constant"]),
        ],
    )
    def test_what_is_wrong(self, tmp_path, arrays, fragments):
        path = tmp_path / "mine.npz"
        np.savez(path, **arrays)
        found = message(path)
        assert found.startswith(f"{path}: ")
        for fragment in fragments:
            assert fragment in found

    def test_files_that_are_none(self, tmp_path):
        path = tmp_path / "mine.npz"
        np.savez(path, images=gray(20), labels=np.arange(20))
        whole = path.read_bytes()
        array = io.BytesIO()
        np.save(array, gray(2))
        for content in (b"", b"text\n", whole[:-30], whole[:100], array.getvalue()):
            path.write_bytes(content)
            found = message(path)
            assert found.startswith(f"{path}: ")
            assert "not an .npz file" in found
            assert "numpy.savez" in found

    @pytest.mark.parametrize("position", [20, 60, 200, 500])
    def test_damage_within(self, tmp_path, position):
        path = tmp_path / "mine.npz"
        np.savez_compressed(
            path, images=np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8), labels=range(20)
        )
        content = bytearray(path.read_bytes())
        content[position : position + 8] = b"\xff" * 8
        path.write_bytes(content)
        found = message(path)
        assert found.startswith(f"{path}: ")
        assert "damaged (" in found

    def test_a_header_that_promises_more_than_any_memory_holds(self, tmp_path):
        header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999, 9999, 9999)}"
        member = b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n"
        path = tmp_path / "mine.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("images.npy", member)
        found = message(path)
        assert found.startswith(f"{path}: ")
        assert "too large for the memory" in found
