"""A person's own data in every form, and a clear line for each way in which it can be wrong."""

import io
import os
import unicodedata
import zipfile
from pathlib import Path

import numpy as np
import pytest

from openworld.data.dataset import Dataset, Files
from openworld.data.own import from_arrays, from_frame, kinds_of, read_own
from openworld.errors import UserError

SOUND_FOLDER = ("labelled/cat/1.png", "labelled/dog/1.jpg", "unlabelled/1.png")


def put(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root


def message(source: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_own(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def names_of_labels(dataset: Dataset, part: str = "train") -> list[str | None]:
    labels = getattr(dataset, part).labels
    assert labels.dtype == np.int64
    return [None if label < 0 else dataset.class_names[label] for label in labels]


@pytest.mark.parametrize("name", ["missing", "missing.csv", "missing.npz"])
def test_a_path_that_is_not_there(tmp_path, name):
    assert message(tmp_path / name) == (
        f"{tmp_path / name}: there is no such file or folder; own data is a folder with labelled/ and unlabelled/, "
        "a manifest (.csv), or arrays (.npz)"
    )


def test_a_form_that_is_not_known(tmp_path):
    put(tmp_path, "data.parquet")
    assert message(tmp_path / "data.parquet").startswith(f"{tmp_path}/data.parquet: not a form of data that can be")


@pytest.mark.parametrize("name", ["folder", "manifest.csv", "arrays.npz"])
def test_what_may_not_be_read(tmp_path, name, monkeypatch):
    path = tmp_path / name
    path.mkdir() if name == "folder" else path.touch()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    assert message(path) == f"{path}: cannot be read (Permission denied)"


class TestFolder:
    def test_parts_and_classes(self, tmp_path):
        root = put(
            tmp_path / "pets",
            "labelled/dog/b.JPG",
            "labelled/dog/a.jpeg",
            "labelled/cat/deep/er/x.webp",
            "unlabelled/z.png",
            "unlabelled/more/a.tiff",
            "test/owl/1.png",
            "test/cat/1.png",
            "test/bat/1.gif",
        )
        dataset = read_own(root)
        assert dataset.name == "pets"
        assert dataset.class_names == ("cat", "dog", "bat", "owl")
        assert dataset.train.content == Files(
            root,
            (
                "labelled/cat/deep/er/x.webp",
                "labelled/dog/a.jpeg",
                "labelled/dog/b.JPG",
                "unlabelled/more/a.tiff",
                "unlabelled/z.png",
            ),
        )
        assert names_of_labels(dataset) == ["cat", "dog", "dog", None, None]
        assert dataset.is_labelled.tolist() == [True, True, True, False, False]
        assert dataset.test.content.paths == ("test/bat/1.gif", "test/cat/1.png", "test/owl/1.png")
        assert names_of_labels(dataset, "test") == ["bat", "cat", "owl"]

    def test_without_a_test_part(self, tmp_path):
        assert read_own(put(tmp_path, *SOUND_FOLDER)).test is None

    def test_what_is_no_image_is_left_out(self, tmp_path):
        put(tmp_path, *SOUND_FOLDER, "labelled/README.txt", "labelled/.DS_Store", "labelled/cat/notes.md", "readme.png")
        put(tmp_path, "labelled/cat/.hidden.png", "labelled/__MACOSX/cat/1.png", "unlabelled/.thumbs/1.png")
        put(tmp_path, "unlabelled/png", "unlabelled/.png", "unlabelled/phone/1.HEIC")
        (tmp_path / os.fsdecode(b"unlabelled/1.\xe9")).touch()
        dataset = read_own(tmp_path)
        assert dataset.train.content.paths == SOUND_FOLDER
        others = ("labelled/README.txt", "labelled/cat/notes.md", "unlabelled/1.\udce9", "unlabelled/phone/1.HEIC")
        assert dataset.left_out == (*others, "unlabelled/png")
        expected = "5 files of other kinds: 1 .txt, 1 .md, 1 .?, 1 .heic, 1 without an ending"
        assert kinds_of(dataset.left_out) == expected

    def test_the_name_of_the_working_directory(self, tmp_path, monkeypatch):
        monkeypatch.chdir(put(tmp_path / "pets", *SOUND_FOLDER))
        assert read_own(Path()).name == "pets"

    def test_american_spelling(self, tmp_path):
        dataset = read_own(put(tmp_path, "Labeled/cat/1.png", "Labeled/dog/1.png", "unlabeled/1.png"))
        assert dataset.train.content.paths == ("Labeled/cat/1.png", "Labeled/dog/1.png", "unlabeled/1.png")
        put(tmp_path, "labelled/cat/2.png")
        assert message(tmp_path) == f"{tmp_path}: Labeled/ and labelled/ are the same part; put them together"

    @pytest.mark.parametrize("form", ["NFC", "NFD"])
    def test_unicode_names(self, tmp_path, form):
        name = unicodedata.normalize(form, "Äffchen 猿")
        dataset = read_own(put(tmp_path, *SOUND_FOLDER, f"labelled/{name}/é.png", f"test/{name}/ü.png"))
        assert dataset.class_names == tuple(sorted(["cat", "dog", name]))
        assert all(Path(dataset.train.content.full_path(position)).exists() for position in range(4))
        assert names_of_labels(dataset, "test") == [name]

    def test_names_that_are_not_unicode(self, tmp_path):
        put(tmp_path, *SOUND_FOLDER)
        (tmp_path / os.fsdecode(b"unlabelled/caf\xe9.png")).touch()
        expected = r"the file name 'unlabelled/caf\udce9.png' is not valid UTF-8; rename the file"
        assert message(tmp_path) == f"{tmp_path}: {expected}"

    @pytest.mark.parametrize(
        ("paths", "expected"),
        [
            ((), ": the folder is empty; a data folder has labelled/<class>/ with images of each known class"),
            (("cat/1.png", "dog/1.png"), ": there is no labelled/ folder in it; a data folder has labelled/<class>/"),
            (("one.png",), ": there is no labelled/ folder in it; a data folder has"),
            (("labelled/1.png",), "/labelled/1.png: lies directly in labelled/; put it into a folder named after"),
            (("labelled/x.txt",), "/labelled: there is no class in it; make a folder for each, named after it"),
            (
                ("labelled/cat/1.png", "labelled/dog/1.txt"),
                "/labelled/dog: there are no images in it (1 file of other kinds: 1 .txt); add some or remove",
            ),
            (
                ("labelled/cat/1.png", "unlabelled/1.png"),
                ": there is only one labelled class (cat); at least 2 are needed",
            ),
            (SOUND_FOLDER[:2], ": there is no unlabelled/ folder in it; a data folder has labelled/<class>/"),
            (
                (*SOUND_FOLDER[:2], "unlabelled/x.heic", "unlabelled/y.HEIC"),
                "/unlabelled: there are no images in it (2 files of other kinds: 2 .heic); put those there that",
            ),
            ((*SOUND_FOLDER, "test/1.png"), "/test/1.png: lies directly in test/; put it into a folder named after"),
            (
                (*SOUND_FOLDER, "test/owl/1.txt"),
                "/test/owl: there are no images in it (1 file of other kinds: 1 .txt); add some or remove the folder",
            ),
            (
                (*SOUND_FOLDER, "labelled/Cat/1.png"),
                ": the classes 'Cat' and 'cat' differ only in spelling; choose one",
            ),
            ((*SOUND_FOLDER, "test/dog /1.png"), ": the classes 'dog' and 'dog ' differ only in spelling; choose one"),
            (
                (*SOUND_FOLDER, "labelled/\u00e9/1.png", "test/e\u0301/1.png"),
                r": the classes '\xe9' and 'e\u0301' differ only in spelling; choose one",
            ),
        ],
    )
    def test_what_is_wrong(self, tmp_path, paths, expected):
        assert message(put(tmp_path, *paths)).startswith(f"{tmp_path}{expected}")

    def test_a_set_without_unlabelled_images_is_shown_the_other_forms(self, tmp_path):
        put(tmp_path, *SOUND_FOLDER[:2])
        assert message(tmp_path).endswith(
            "A set whose images are all labelled can be given as a manifest (.csv) or .npz"
        )

    def test_a_link_to_a_file_inside_is_fine_and_the_root_may_be_a_link(self, tmp_path):
        root = put(tmp_path / "data", *SOUND_FOLDER)
        (root / "unlabelled/2.png").symlink_to("../labelled/cat/1.png")
        (tmp_path / "link").symlink_to(root)
        for path in (root, tmp_path / "link"):
            assert read_own(path).train.content.paths == (*SOUND_FOLDER, "unlabelled/2.png")

    @pytest.mark.parametrize("link", ["labelled/cat/x.png", "labelled/x", "unlabelled/x.png", "test/cat/x.png"])
    @pytest.mark.parametrize(
        ("target", "expected"),
        [
            ("outside.png", "a link to a file outside {root}; put the file itself there"),
            ("outside", "a link to a folder; put the folder itself there"),
            ("data/unlabelled", "a link to a folder; put the folder itself there"),
            ("data/nothing.png", "a link to nothing; remove it"),
        ],
    )
    def test_other_links_are_refused(self, tmp_path, link, target, expected):
        root = put(tmp_path / "data", *SOUND_FOLDER, "test/cat/1.png")
        put(tmp_path, "outside.png", "outside/1.png")
        (root / link).symlink_to(tmp_path / target)
        assert message(root) == f"{root / link}: {expected.format(root=root)}"

    def test_a_part_that_is_a_link_is_refused(self, tmp_path):
        root = put(tmp_path / "data", *SOUND_FOLDER[:2])
        put(tmp_path, "outside/1.png")
        (root / "unlabelled").symlink_to(tmp_path / "outside")
        assert message(root) == f"{root}/unlabelled: a link to a folder; put the folder itself there"


IMAGES = ("a.png", "b.png", "deep/c.png", "deep/d.png", "ünï cödé.png")


@pytest.fixture
def manifest(tmp_path):
    """Writes a manifest beside five files."""
    put(tmp_path, *IMAGES)

    def write(text: str, encoding: str = "utf-8") -> Path:
        (tmp_path / "pets.csv").write_bytes(text.encode(encoding))
        return tmp_path / "pets.csv"

    return write


class TestManifest:
    def test_splits_and_labels(self, manifest, tmp_path):
        text = "path,label,split\nb.png,dog,\na.png,cat,train\ndeep/c.png,,train\ndeep/d.png,owl,unlabelled\n"
        dataset = read_own(manifest(text + "ünï cödé.png,bat,test\n"))
        assert dataset.name == "pets.csv"
        assert dataset.class_names == ("cat", "dog", "bat", "owl")
        assert dataset.train.content == Files(tmp_path, ("b.png", "a.png", "deep/c.png", "deep/d.png"))
        assert names_of_labels(dataset) == ["dog", "cat", None, "owl"]
        assert dataset.is_labelled.tolist() == [True, True, False, False]
        assert dataset.test.content.paths == ("ünï cödé.png",)
        assert names_of_labels(dataset, "test") == ["bat"]

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
    @pytest.mark.parametrize("newline", ["\n", "\r\n"])
    def test_columns_in_any_order_short_lines_and_blank_lines(self, manifest, encoding, newline):
        lines = [
            " split,size, label ,path",
            "",
            "labeled,9,cat,a.png",
            "",
            "LABELLED,9,dog,./b.png",
            "Unlabeled,9,,deep//c.png",
        ]
        dataset = read_own(manifest(newline.join(lines), encoding))
        assert dataset.train.content.paths == ("a.png", "b.png", "deep/c.png")
        assert dataset.is_labelled.tolist() == [True, True, False]

    def test_split_is_optional_and_lines_may_end_early(self, manifest):
        dataset = read_own(manifest('path,label\na.png,"cat, big"\nb.png,dog\ndeep/c.png\n'))
        assert dataset.class_names == ("cat, big", "dog")
        assert dataset.is_labelled.tolist() == [True, True, False]
        assert dataset.test is None

    def test_a_set_that_is_all_labelled_is_a_benchmark(self, manifest):
        dataset = read_own(manifest("path,label,split\na.png,2,\nb.png,10,\ndeep/c.png,2,\ndeep/d.png,7,test\n"))
        assert dataset.is_labelled is None
        assert dataset.class_names == ("10", "2", "7")
        assert names_of_labels(dataset) == ["2", "10", "2"]

    def test_truth_of_unlabelled_rows_is_not_labelled(self, manifest):
        dataset = read_own(manifest("path,label,split\na.png,cat,\nb.png,dog,\ndeep/c.png,cat,unlabelled\n"))
        assert dataset.is_labelled.tolist() == [True, True, False]
        assert names_of_labels(dataset) == ["cat", "dog", "cat"]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", ": there is no column path; the columns must be path,label and perhaps split (found: none)"),
            ("path;label\na.png;cat\n", ": there is no column path; the columns must be path,label and perhaps split"),
            ("path,class\na.png,cat\n", ": there is no column label; the columns must be path,label and perhaps"),
            ("path,label\n", ": there are no rows in it; it needs one for each image"),
            ("path,label\na.png,cat\n,dog\n", ", line 3: the path is empty; name an image file"),
            ("path,label\na.png,cat\n\nx.png,dog\n", ", line 4: there is no file x.png in {root}; correct the path"),
            ("path,label\ndeep,cat\n", ", line 2: there is no file deep in {root}; correct the path or remove the row"),
            ("path,label\nnone/x.png,cat\n", ", line 2: there is no file none/x.png in {root}; correct the path"),
            ("path,label\na.png/x.png,cat\n", ", line 2: there is no file a.png/x.png in {root}; correct the path"),
            (
                "path,label\ndeep\\c.png,cat\n",
                r", line 2: there is no file deep\c.png in {root}; write paths with forward",
            ),
            ("path,label\nx\0.png,cat\n", ", line 2: there is no file x"),
            ("path,label\nx\0/y.png,cat\n", ", line 2: there is no file x"),
            ("path,label\n/etc/passwd,cat\n", ", line 2: /etc/passwd leaves {root}; paths must be relative to that"),
            ("path,label\n../x.png,cat\n", ", line 2: ../x.png leaves {root}; paths must be relative to that folder"),
            ("path,label\ndeep/../../x.png,cat\n", ", line 2: ../x.png leaves {root}; paths must be relative"),
            ("path,label\n..,cat\n", ", line 2: .. leaves {root}; paths must be relative to that folder and stay"),
            (
                "path,label\na.png,cat\nb.png,dog\n./a.png,cat\n",
                ", line 4: a.png is there already, at {root}/pets.csv, line 2; remove one of the two",
            ),
            (
                "path,label\na.png,cat\nb.png,dog\ndeep/c.png,Dog \n",
                ", line 4: the classes 'dog' and 'Dog ' differ only in spelling; choose one",
            ),
            (
                "path,label,split\na.png,cat,tests\n",
                ", line 2: the split is 'tests'; it must be train, labelled, unlabelled, test or empty; did you mean "
                "test?",
            ),
            ("path,label,split\na.png,,labelled\n", ", line 2: the split is labelled, but there is no label; add it"),
            ("path,label,split\na.png, ,test\n", ", line 2: the split is test, but there is no label; add it"),
            ("path,label\na.png,cat\nb.png,\n", ": there is only one labelled class (cat); at least 2 are needed"),
            ("path,label\na.png,\nb.png,\n", ": there is no labelled class; at least 2 are needed"),
            ("path,label\na.png," + "x" * 200_000, ", line 2: not readable as CSV (field larger than field limit"),
        ],
    )
    def test_what_is_wrong(self, manifest, tmp_path, text, expected):
        assert message(manifest(text)).startswith(f"{tmp_path}/pets.csv{expected.format(root=tmp_path)}")

    @pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
    def test_other_encodings(self, manifest, encoding):
        path = manifest("path,label\nünï cödé.png,cat\n", encoding)
        assert message(path) == f"{path}: not UTF-8 text; save the manifest as CSV in UTF-8"

    def test_links(self, tmp_path):
        root = put(tmp_path / "data", *IMAGES)
        put(tmp_path, "outside/1.png")
        (root / "inside.png").symlink_to("a.png")
        (root / "outside.png").symlink_to(tmp_path / "outside/1.png")
        (root / "folder").symlink_to(tmp_path / "outside")
        path = root / "pets.csv"
        path.write_text("path,label\ninside.png,cat\nb.png,dog\n")
        assert len(read_own(path).train) == 2
        path.write_text("path,label\na.png,cat\noutside.png,dog\n")
        assert message(path) == f"{root}/outside.png: a link to a file outside {root}; put the file itself there"
        path.write_text("path,label\na.png,cat\nfolder/1.png,dog\n")
        assert message(path) == f"{path}, line 3: folder leaves {root} by a link; put the folder itself there"
        path.write_text("path,label\na.png,cat\nfolder,dog\n")
        assert message(path) == f"{root}/folder: a link to a folder; put the folder itself there"


class Frame(dict):
    """As much of a data frame as is needed."""

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
        put(tmp_path, *IMAGES)  # where every test runs
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
