"""User data in folders and manifests, and a clear error message for each mistake in it."""

import os
import unicodedata
from pathlib import Path

import pytest
from own_data import IMAGES, message, names_of_labels, put

from openworld.data.dataset import Files
from openworld.data.own import kinds_of, read_own

SOUND_FOLDER = ("labelled/cat/1.png", "labelled/dog/1.jpg", "unlabelled/1.png")


@pytest.mark.parametrize("name", ["missing", "missing.csv", "missing.npz"])
def test_a_path_that_is_not_there(tmp_path, name):
    found = message(tmp_path / name)
    assert found.startswith(f"{tmp_path / name}: ")
    for fragment in ("no such file or folder", "labelled/", "unlabelled/", ".csv", ".npz"):
        assert fragment in found


def test_a_form_that_is_not_known(tmp_path):
    put(tmp_path, "data.parquet")
    found = message(tmp_path / "data.parquet")
    assert found.startswith(f"{tmp_path}/data.parquet: ")
    for fragment in ("kind of file", "labelled/", ".csv", ".npz"):
        assert fragment in found


@pytest.mark.parametrize("name", ["folder", "manifest.csv", "arrays.npz"])
def test_what_may_not_be_read(tmp_path, name, monkeypatch):
    path = tmp_path / name
    path.mkdir() if name == "folder" else path.touch()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    assert message(path).startswith(f"{path}: cannot be read (Permission denied)")


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
        put(tmp_path, "unlabelled/png", "unlabelled/.png", "unlabelled/phone/1.CR2")
        (tmp_path / os.fsdecode(b"unlabelled/1.\xe9")).touch()
        dataset = read_own(tmp_path)
        assert dataset.train.content.paths == SOUND_FOLDER
        others = ("labelled/README.txt", "labelled/cat/notes.md", "unlabelled/1.\udce9", "unlabelled/phone/1.CR2")
        assert dataset.left_out == (*others, "unlabelled/png")
        expected = "5 files of other kinds: 1 .txt, 1 .md, 1 .?, 1 .cr2, 1 without an extension"
        assert kinds_of(dataset.left_out) == expected

    def test_the_name_of_the_working_directory(self, tmp_path, monkeypatch):
        monkeypatch.chdir(put(tmp_path / "pets", *SOUND_FOLDER))
        assert read_own(Path()).name == "pets"

    def test_american_spelling(self, tmp_path):
        dataset = read_own(put(tmp_path, "Labeled/cat/1.png", "Labeled/dog/1.png", "unlabeled/1.png"))
        assert dataset.train.content.paths == ("Labeled/cat/1.png", "Labeled/dog/1.png", "unlabeled/1.png")
        put(tmp_path, "labelled/cat/2.png")
        assert message(tmp_path).startswith(f"{tmp_path}: Labeled/ and labelled/ are the same part")

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
        assert r"'unlabelled/caf\udce9.png' is not valid UTF-8" in message(tmp_path)

    @pytest.mark.parametrize(
        ("paths", "place", "fragments"),
        [
            ((), "", ["empty", "labelled/<class>/"]),
            (("cat/1.png", "dog/1.png"), "", ["folder labelled/ is missing", "labelled/<class>/"]),
            (("one.png",), "", ["folder labelled/ is missing", "labelled/<class>/"]),
            (("labelled/1.png",), "/labelled/1.png", ["directly in labelled/", "class"]),
            (("labelled/x.txt",), "/labelled", ["no class folders"]),
            (("labelled/cat/1.png", "labelled/dog/1.txt"), "/labelled/dog", ["no images", "1 .txt", ".jpg, "]),
            (("labelled/cat/1.png", "unlabelled/1.png"), "", ["only one class", "(cat)", "at least 2"]),
            (SOUND_FOLDER[:2], "", ["unlabelled/ is missing", "labelled/<class>/", ".csv", ".npz"]),
            (
                (*SOUND_FOLDER[:2], "unlabelled/x.cr2", "unlabelled/y.CR2"),
                "/unlabelled",
                ["no images", "2 .cr2", ".jpg, "],
            ),
            ((*SOUND_FOLDER, "test/1.png"), "/test/1.png", ["directly in test/", "class"]),
            ((*SOUND_FOLDER, "test/owl/1.txt"), "/test/owl", ["no images", "1 .txt"]),
            ((*SOUND_FOLDER, "labelled/Cat/1.png"), "", ["'Cat' and 'cat' differ only in"]),
            ((*SOUND_FOLDER, "test/dog /1.png"), "", ["'dog' and 'dog ' differ only in"]),
            (
                (*SOUND_FOLDER, "labelled/\u00e9/1.png", "test/e\u0301/1.png"),
                "",
                [r"'\xe9' and 'e\u0301' differ only in"],
            ),
        ],
    )
    def test_what_is_wrong(self, tmp_path, paths, place, fragments):
        found = message(put(tmp_path, *paths))
        assert found.startswith(f"{tmp_path}{place}: ")
        for fragment in fragments:
            assert fragment in found

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
            ("outside.png", "link to a file outside {root}; replace"),
            ("outside", "link to a folder; replace"),
            ("data/unlabelled", "link to a folder; replace"),
            ("data/nothing.png", "does not exist; remove"),
        ],
    )
    def test_other_links_are_refused(self, tmp_path, link, target, expected):
        root = put(tmp_path / "data", *SOUND_FOLDER, "test/cat/1.png")
        put(tmp_path, "outside.png", "outside/1.png")
        (root / link).symlink_to(tmp_path / target)
        found = message(root)
        assert found.startswith(f"{root / link}: ")
        assert expected.format(root=root) in found

    def test_a_part_that_is_a_link_is_refused(self, tmp_path):
        root = put(tmp_path / "data", *SOUND_FOLDER[:2])
        put(tmp_path, "outside/1.png")
        (root / "unlabelled").symlink_to(tmp_path / "outside")
        assert message(root).startswith(f"{root}/unlabelled: this is a link to a folder")


@pytest.fixture
def manifest(tmp_path):
    """Return a function that writes a manifest beside five files."""
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
        ("text", "place", "fragments"),
        [
            ("", "", ["column path is missing", "found: none"]),
            ("path;label\na.png;cat\n", "", ["column path is missing", "found: path;label"]),
            ("path,class\na.png,cat\n", "", ["column label is missing", "found: path,class"]),
            ("path,label\n", "", ["no rows"]),
            ("path,label\na.png,cat\n,dog\n", ", line 3", ["path is empty"]),
            ("path,label\na.png,cat\n\nx.png,dog\n", ", line 4", ["no file x.png in {root}"]),
            ("path,label\ndeep,cat\n", ", line 2", ["no file deep in {root}"]),
            ("path,label\nnone/x.png,cat\n", ", line 2", ["no file none/x.png in {root}"]),
            ("path,label\na.png/x.png,cat\n", ", line 2", ["no file a.png/x.png in {root}"]),
            ("path,label\ndeep\\c.png,cat\n", ", line 2", [r"no file deep\c.png in {root}", "forward slashes"]),
            ("path,label\nx\0.png,cat\n", ", line 2", ["no file x"]),
            ("path,label\nx\0/y.png,cat\n", ", line 2", ["no file x"]),
            ("path,label\n/etc/passwd,cat\n", ", line 2", ["/etc/passwd is outside {root}", "relative"]),
            ("path,label\n../x.png,cat\n", ", line 2", ["../x.png is outside {root}"]),
            ("path,label\ndeep/../../x.png,cat\n", ", line 2", ["../x.png is outside {root}"]),
            ("path,label\n..,cat\n", ", line 2", [".. is outside {root}"]),
            (
                "path,label\na.png,cat\nb.png,dog\n./a.png,cat\n",
                ", line 4",
                ["a.png is a duplicate of {root}/pets.csv, line 2"],
            ),
            (
                "path,label\na.png,cat\nb.png,dog\ndeep/c.png,Dog \n",
                ", line 4",
                ["'dog' and 'Dog ' differ only in"],
            ),
            (
                "path,label,split\na.png,cat,tests\n",
                ", line 2",
                ["'tests'", "train, labelled, unlabelled, test or empty", "did you mean test?"],
            ),
            ("path,label,split\na.png,,labelled\n", ", line 2", ["split is labelled", "label is empty"]),
            ("path,label,split\na.png, ,test\n", ", line 2", ["split is test", "label is empty"]),
            ("path,label\na.png,cat\nb.png,\n", "", ["only one class", "(cat)", "at least 2"]),
            ("path,label\na.png,\nb.png,\n", "", ["no class has", "at least 2"]),
            ("path,label\na.png," + "x" * 200_000, ", line 2", ["CSV (field larger than field limit"]),
        ],
    )
    def test_what_is_wrong(self, manifest, tmp_path, text, place, fragments):
        found = message(manifest(text))
        assert found.startswith(f"{tmp_path}/pets.csv{place}: ")
        for fragment in fragments:
            assert fragment.format(root=tmp_path) in found

    @pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
    def test_other_encodings(self, manifest, encoding):
        path = manifest("path,label\nünï cödé.png,cat\n", encoding)
        found = message(path)
        assert found.startswith(f"{path}: ")
        assert "not UTF-8 text" in found

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
        assert message(path).startswith(f"{root}/outside.png: this is a link to a file outside {root}")
        path.write_text("path,label\na.png,cat\nfolder/1.png,dog\n")
        found = message(path)
        assert found.startswith(f"{path}, line 3: ")
        assert "link" in found
        assert f"folder leads outside {root}" in found
        path.write_text("path,label\na.png,cat\nfolder,dog\n")
        assert message(path).startswith(f"{root}/folder: this is a link to a folder")
