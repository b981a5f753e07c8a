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
        ("frame", "expected"),
        [
            (Frame(path=["a.png"]), "the data frame: there is no column label; the columns must be path,label and"),
            (Frame(), "the data frame: there is no column path; "),
            (Frame(path=[], label=[]), "the data frame: there are no rows in it"),
            (Frame(path=["a.png", "x.png"], label=[1, 2]), "the data frame, row 1: there is no file x.png in"),
            (Frame(path=["a.png"], label=[None], split=["labelled"]), "the data frame, row 0: the split is labelled,"),
        ],
    )
    def test_what_is_wrong(self, tmp_path, frame, expected):
        with pytest.raises(UserError) as caught:
            from_frame(frame, put(tmp_path, *IMAGES))
        assert str(caught.value).startswith(expected)

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
        ("arguments", "expected"),
        [
            ((np.zeros((2, 4, 4)), [0, 1]), "images are float64; they must be uint8, from 0 to 255"),
            ((gray(2, 3, 8, 8), [0, 1]), "images have the shape (2, 3, 8, 8); it must be (N, H, W) or (N, H, W, C), "),
            ((gray(2, 8, 8, 2), [0, 1]), "images have the shape (2, 8, 8, 2); it must be"),
            ((gray(2, 0, 8), [0, 1]), "images have the shape (2, 0, 8); it must be"),
            ((gray(0, 8, 8), []), "images have the shape (0, 8, 8); it must be"),
            ((gray(8), [0, 1]), "there are 8 samples, but 2 labels; there must be one for each"),
            ((gray(2, 1, 1, 1, 1), [0, 1]), "images have the shape (2, 1, 1, 1, 1); it must be"),
            ((np.uint8(3), [0, 1]), "images have the shape (); it must be"),
            ((np.zeros((2, 4), bool), [0, 1]), "features are bool of the shape (2, 4); they must be numbers of the"),
            ((np.zeros((2, 4), complex), [0, 1]), "features are complex128 of the shape (2, 4); they must be numbers"),
            ((np.zeros((2, 0)), [0, 1]), "features are float64 of the shape (2, 0); they must be numbers of the"),
            (([[1, 2], [3, np.nan]], [0, 1]), "features hold NaN or an infinite number, first in row 1; remove such"),
            (([[np.inf, 2], [3, 1]], [0, 1]), "features hold NaN or an infinite number, first in row 0; remove such"),
            (([[1e39, 2], [3, 1]], [0, 1]), "features hold NaN or an infinite number, first in row 0; remove such"),
            ((gray(2), [0.0, 1.0]), "labels are float64 of the shape (2,); they must be (N,) whole numbers, -1 for"),
            ((gray(2), [True, False]), "labels are bool of the shape (2,); they must be"),
            ((gray(2), ["a", None]), "labels are object of the shape (2,); they must be"),
            ((gray(2), [[0], [1]]), "labels are int64 of the shape (2, 1); they must be"),
            ((gray(2), [0, -2]), "a label is -2; only -1 (unlabelled) may be negative"),
            ((gray(2), [-1, -1]), "there is no labelled class; at least 2 are needed"),
            ((gray(1), [3]), "there is only one labelled class (3); at least 2 are needed"),
            ((gray(2), ["cat", "Cat"]), "the classes 'cat' and 'Cat' differ only in spelling; choose one"),
            ((gray(2), [0, 1], gray(2)), "a test part has samples and labels; one of the two is missing"),
            ((gray(2), [0, 1], None, [0]), "a test part has samples and labels; one of the two is missing"),
            ((gray(2), [0, 1], gray(2, 5, 5), [0, 1]), "images have the shape (4, 4, 1) in training and (5, 5, 1) in"),
            ((gray(2), [0, 1], gray(2), ["0", "1"]), "labels are numbers in one part and strings in the other; use"),
        ],
    )
    def test_what_is_wrong(self, arguments, expected):
        with pytest.raises(UserError) as caught:
            from_arrays(*arguments, name="mine")
        assert str(caught.value).startswith(f"mine: {expected}")

    @pytest.mark.parametrize(
        ("test", "test_labels", "expected"),
        [
            (gray(2), [0, -1], "sample 1 has no label; add it"),
            (gray(2), [0], "there are 2 samples, but 1 labels; there must be one for each"),
            (np.zeros((2, 4, 4)), [0, 1], "images are float64; they must be uint8, from 0 to 255"),
        ],
    )
    def test_what_is_wrong_with_the_test_part(self, test, test_labels, expected):
        with pytest.raises(UserError) as caught:
            from_arrays(gray(2), [0, 1], test, test_labels)
        assert str(caught.value) == f"arrays, test part: {expected}"


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
            np.savez(file, features=np.ones((3, 2)), labels=["a", "b", ""])
        assert read_own(path).has_features

    @pytest.mark.parametrize(
        ("arrays", "expected"),
        [
            ({"labels": [0, 1]}, "must hold labels and either images or features (found: labels)"),
            ({"images": gray(2)}, "must hold labels and either images or features (found: images)"),
            ({}, "must hold labels and either images or features (found: nothing)"),
            ({"x": gray(2), "y": [0, 1]}, "must hold labels and either images or features (found: x, y)"),
            (
                {"images": gray(2), "features": np.ones((2, 2)), "labels": [0, 1]},
                "must hold labels and either images or features (found: images, features, labels)",
            ),
            (
                {"images": gray(2), "labels": [0, 1], "test_features": np.ones((2, 2)), "test_labels": [0, 1]},
                "must hold labels and either images or features (found: images, labels, test_features, test_labels)",
            ),
            ({"images": gray(2), "labels": [0, 1], "test_labels": [0]}, "a test part has samples and labels; one of"),
            (
                {"features": gray(2), "labels": [0, 1]},
                "features are uint8 of the shape (2, 4, 4); they must be numbers",
            ),
            ({"images": gray(2, 4), "labels": [0, 1]}, "images have the shape (2, 4); it must be (N, H, W) or"),
            (
                {"images": gray(2), "labels": np.array(["a", None])},
                "an array of Python objects could run code; save numbers or strings",
            ),
        ],
    )
    def test_what_is_wrong(self, tmp_path, arrays, expected):
        path = tmp_path / "mine.npz"
        np.savez(path, **arrays)
        assert message(path).startswith(f"{path}: {expected}")

    def test_files_that_are_none(self, tmp_path):
        path = tmp_path / "mine.npz"
        np.savez(path, images=gray(20), labels=np.arange(20))
        whole = path.read_bytes()
        array = io.BytesIO()
        np.save(array, gray(2))
        for content in (b"", b"text\n", whole[:-30], whole[:100], array.getvalue()):
            path.write_bytes(content)
            assert message(path) == f"{path}: damaged, or not an .npz file; write it with numpy.savez"

    @pytest.mark.parametrize("position", [20, 60, 200, 500])
    def test_damage_within(self, tmp_path, position):
        path = tmp_path / "mine.npz"
        np.savez_compressed(
            path, images=np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8), labels=range(20)
        )
        content = bytearray(path.read_bytes())
        content[position : position + 8] = b"\xff" * 8
        path.write_bytes(content)
        assert message(path).startswith(f"{path}: damaged (")

    def test_a_header_that_promises_more_than_any_memory_holds(self, tmp_path):
        header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999, 9999, 9999)}"
        member = b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n"
        path = tmp_path / "mine.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("images.npy", member)
        assert message(path) == f"{path}: too large for the memory of this machine; give the images as files"
