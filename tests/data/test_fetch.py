"""Downloads from a server that misbehaves in many ways, and archives that are not safe to unpack."""

import errno
import hashlib
import tarfile
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from fake_site import TOY, Handler, Site, read_toy, special_info, tar_of, zip_of

from openworld.core.errors import UserError
from openworld.data import fetch as fetch_module
from openworld.data.benchmarks import BENCHMARKS, Benchmark
from openworld.data.fetch import fetch, is_there
from openworld.data.sources import SOURCES, Archive, Source


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    site = Site()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("SiteHandler", (Handler,), {"site": site})) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        site.address = f"http://127.0.0.1:{server.server_port}/archives"
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture
def publish(site, monkeypatch):
    """Return a function that puts archives on the server, as the benchmark `toy`."""

    def put(wanted=("names.txt", "images/*.jpg"), inside="toy-1", limit=10**6, md5=None, **contents: bytes) -> None:
        archives = []
        for stem, content in contents.items():
            file_name = f"{stem}.zip" if content.startswith(b"PK") else f"{stem}.tar.gz"
            site.files[file_name] = content
            digest = md5 or hashlib.md5(content).hexdigest()
            archives.append(Archive(f"{site.address}/{file_name}", digest, len(content), limit, wanted, inside))
        toy = Benchmark("toys/toy", read_toy, Source("get it from the shop into {data_dir}", tuple(archives)))
        monkeypatch.setitem(BENCHMARKS, "toy", toy)

    return put


class ProgressLog:
    """A progress callback that records its calls."""

    def __init__(self):
        self.calls: list[tuple[int, int | None, str]] = []

    def __call__(self, done, total, label):
        self.calls.append((done, total, label))


def error_of(data_dir: Path, *fragments: str, name: str = "toy") -> str:
    """The message, in which all fragments must be."""
    with pytest.raises(UserError) as raised:
        fetch(name, data_dir, ProgressLog())
    message = str(raised.value)
    assert [fragment for fragment in fragments if fragment not in message] == []
    assert "\n" not in message
    return message


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


WHOLE = {"toys/toy/names.txt", "toys/toy/images/cat.jpg", "toys/toy/images/dog.jpg"}


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_only_the_wanted_files_arrive(site, publish, tmp_path, pack):
    content = pack(TOY)
    publish(toys=content)
    progress = ProgressLog()
    assert fetch("toy", tmp_path / "new", progress) == tmp_path / "new/toys/toy"
    assert everything_in(tmp_path / "new") == WHOLE
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["toys"]
    assert (tmp_path / "new/toys/toy/images/dog.jpg").read_bytes() == TOY["./toy-1/images/dog.jpg"]
    downloading = [call for call in progress.calls if call[2].startswith("downloading toys.")]
    assert downloading[-1][:2] == (len(content), len(content))
    assert downloading == sorted(downloading)
    assert progress.calls[-1][2].startswith("unpacking toys.")


def test_several_archives_fill_one_folder(publish, tmp_path):
    images = {name.removeprefix("toy-1/"): content for name, content in TOY.items() if name.startswith("toy-1/images")}
    publish(inside="", images=tar_of(images), names=tar_of({"names.txt": b"cat"}))
    fetch("toy", tmp_path, ProgressLog())
    assert everything_in(tmp_path) == {"toys/toy/names.txt", "toys/toy/images/cat.jpg"}


def test_what_is_there_is_left_alone(site, publish, tmp_path):
    publish(toys=tar_of(TOY))
    assert not is_there("toy", tmp_path)
    fetch("toy", tmp_path, ProgressLog())
    assert is_there("toy", tmp_path)
    progress = ProgressLog()
    assert fetch("toy", tmp_path, progress) == tmp_path / "toys/toy"
    assert (len(site.requested_ranges), progress.calls) == (1, [])


def test_a_folder_that_cannot_be_read_is_not_touched(site, publish, tmp_path):
    publish(toys=tar_of(TOY))
    fetch("toy", tmp_path, ProgressLog())
    (tmp_path / "toys/toy/images/cat.jpg").unlink()
    error_of(tmp_path, "toys/toy: ", "cannot be used", "cat.jpg is missing", "move it away")
    assert len(site.requested_ranges) == 1
    assert "toys/toy/images/dog.jpg" in everything_in(tmp_path)


@pytest.mark.parametrize("name", ["digits", "stanford-cars", "imagenet100"])
def test_what_cannot_be_fetched_is_explained(name, tmp_path):
    instructions = SOURCES[name].instructions.format(data_dir=tmp_path)
    error_of(tmp_path, f"{name}: ", "cannot download", instructions, name=name)
    assert list(tmp_path.iterdir()) == []


# Downloading.


@pytest.mark.parametrize("sends_length", [True, False])
def test_a_lost_connection_is_resumed(site, publish, tmp_path, sends_length):
    content = tar_of(TOY)
    publish(toys=content)
    site.breaks_after, site.sends_length = 70_000, sends_length
    error_of(tmp_path, f"{site.address}/toys.tar.gz: ", f"70,000 of {len(content):,} bytes", "same command again")
    assert everything_in(tmp_path) == {".downloads/toys.tar.gz.part"}

    site.breaks_after = None
    progress = ProgressLog()
    fetch("toy", tmp_path, progress)
    assert site.requested_ranges == [None, "bytes=70000-"]
    assert site.bytes_sent == len(content)
    assert progress.calls[0][0] > 70_000
    assert everything_in(tmp_path) == WHOLE


def test_a_server_that_knows_no_range_starts_again(site, publish, tmp_path):
    content = tar_of(TOY)
    publish(toys=content)
    site.breaks_after = 70_000
    error_of(tmp_path)
    site.breaks_after, site.knows_range = None, False
    fetch("toy", tmp_path, ProgressLog())
    assert site.bytes_sent == 70_000 + len(content)
    assert everything_in(tmp_path) == WHOLE


def write_part(data_dir: Path, content: bytes) -> None:
    (data_dir / ".downloads").mkdir()
    (data_dir / ".downloads/toys.tar.gz.part").write_bytes(content)


def test_a_whole_part_is_not_downloaded_again(site, publish, tmp_path):
    content = tar_of(TOY)
    publish(toys=content)
    write_part(tmp_path, content)
    fetch("toy", tmp_path, ProgressLog())
    assert (site.requested_ranges, everything_in(tmp_path)) == ([], WHOLE)


@pytest.mark.parametrize("excess", [0, 5])
def test_a_part_as_long_as_the_archive_but_wrong_starts_again(site, publish, tmp_path, excess):
    content = tar_of(TOY)
    publish(toys=content)
    write_part(tmp_path, b"x" * (len(content) + excess))
    fetch("toy", tmp_path, ProgressLog())
    assert site.requested_ranges == [f"bytes={len(content) + excess}-", None]
    assert everything_in(tmp_path) == WHOLE


def test_a_second_archive_that_fails_does_not_cost_the_first(site, publish, tmp_path):
    publish(one=tar_of(TOY), two=tar_of({}))
    second, site.files["two.tar.gz"] = site.files["two.tar.gz"], b""
    error_of(tmp_path, "offers 0 bytes")
    site.files["two.tar.gz"] = second
    sent = site.bytes_sent
    fetch("toy", tmp_path, ProgressLog())
    assert site.bytes_sent == sent + len(second)


def test_a_wrong_md5_deletes_the_download(site, publish, tmp_path):
    content = tar_of(TOY)
    publish(toys=content, md5="0" * 32)
    error_of(tmp_path, f"{site.address}/toys.tar.gz: ", hashlib.md5(content).hexdigest(), "0" * 32)
    assert list(tmp_path.iterdir()) == []


def test_a_login_page_does_not_cost_what_is_downloaded(site, publish, tmp_path):
    content = tar_of(TOY)
    publish(toys=content)
    write_part(tmp_path, content[:90_000])
    site.files["toys.tar.gz"], site.knows_range = b"<html>Please log in</html>", False
    error_of(tmp_path, "offers 26 bytes", f"{len(content):,}", "login page")
    assert (tmp_path / ".downloads/toys.tar.gz.part").read_bytes() == content[:90_000]


@pytest.mark.parametrize("status", [403, 404, 416, 503])
def test_a_server_that_refuses(site, publish, tmp_path, status):
    publish(toys=tar_of(TOY))
    site.status = status
    error_of(tmp_path, f"{site.address}/toys.tar.gz: ", f" {status} ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/toys.tar.gz", "http://nowhere.invalid/toys.tar.gz"])
def test_no_connection(monkeypatch, tmp_path, address):
    monkeypatch.setenv("no_proxy", "*")
    archive = Archive(address, "0" * 32, 10, 10, ("*",))
    monkeypatch.setitem(
        BENCHMARKS, "toy", Benchmark("toy", read_toy, Source("get it by hand into {data_dir}", (archive,)))
    )
    error_of(tmp_path, f"{address}: cannot be reached (", "network", f"get it by hand into {tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_falls_silent(site, publish, monkeypatch, tmp_path):
    monkeypatch.setattr(fetch_module, "TIMEOUT", 0.05)
    publish(toys=tar_of(TOY))
    release = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda _self: release.wait(5))
    assert "cannot be reached (timed out)" in error_of(tmp_path)
    release.set()


# Disk errors.


def full_disk(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_while_unpacking(site, publish, monkeypatch, tmp_path):
    publish(toys=tar_of(TOY))
    with monkeypatch.context() as patch:
        patch.setattr(fetch_module.shutil, "copyfileobj", full_disk)
        error_of(tmp_path, f"{tmp_path}: cannot be written (No space left on device)", "--data-dir")
    assert everything_in(tmp_path) == {".downloads/toys.tar.gz.part"}
    fetch("toy", tmp_path, ProgressLog())
    assert len(site.requested_ranges) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_is_full_while_downloading(publish, monkeypatch, tmp_path):
    publish(toys=tar_of(TOY))
    (tmp_path / ".downloads").mkdir()
    (tmp_path / ".downloads/toys.tar.gz.part").symlink_to("/dev/full")
    monkeypatch.setattr(fetch_module, "_digest_of", lambda _part: (hashlib.md5(), 0))  # /dev/full has no end
    assert "cannot be written (No space left on device)" in error_of(tmp_path)


def test_a_data_folder_that_is_a_file(publish, tmp_path):
    publish(toys=tar_of(TOY))
    (tmp_path / "file").write_text("")
    assert "cannot be written" in error_of(tmp_path / "file")


def test_remains_of_a_killed_attempt_do_no_harm(publish, tmp_path):
    publish(toys=tar_of(TOY))
    stale = tmp_path / ".downloads/toy.tmp/images/mouse.jpg"
    stale.parent.mkdir(parents=True)
    stale.write_text("old")
    fetch("toy", tmp_path, ProgressLog())
    assert everything_in(tmp_path) == WHOLE


def test_an_interrupt_leaves_no_half_folder(publish, tmp_path):
    publish(toys=tar_of(TOY))

    def interrupt(_done, _total, label):
        if label.startswith("unpacking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("toy", tmp_path, interrupt)
    assert everything_in(tmp_path) == {".downloads/toys.tar.gz.part"}


# Archives that are not safe to unpack.

HOSTILE_NAMES = [
    "../evil.jpg",
    "toy-1/images/../../../evil.jpg",
    "toy-1/..",
    "/tmp/evil.jpg",
    "C:/evil.jpg",
    "c:evil.jpg",
    "toy-1\\images\\evil.jpg",
]
HOSTILE_KINDS = [
    special_info("toy-1/images/link.jpg", tarfile.SYMTYPE, "/etc/passwd"),
    special_info("toy-1/images/hard.jpg", tarfile.LNKTYPE, "toy-1/names.txt"),
    special_info("toy-1/other", tarfile.SYMTYPE, ".."),
    special_info("toy-1/device", tarfile.CHRTYPE),
    special_info("toy-1/disk", tarfile.BLKTYPE),
    special_info("toy-1/pipe", tarfile.FIFOTYPE),
]


def check_refused(data_dir: Path, *words: str) -> None:
    error_of(data_dir, *words, "deleted it")
    assert list(data_dir.iterdir()) == []
    assert not (data_dir.parent / "evil.jpg").exists()


@pytest.mark.parametrize("pack", [tar_of, zip_of])
@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_unsafe_paths_are_refused(publish, tmp_path, pack, name):
    publish(toys=pack(TOY | {name: b"evil"}))
    (tmp_path / "data").mkdir()
    check_refused(tmp_path / "data", "toys.", f"unsafe path {name!r}")


@pytest.mark.parametrize("info", HOSTILE_KINDS, ids=lambda info: info.name)
def test_links_and_devices_are_refused(publish, tmp_path, info):
    publish(toys=tar_of(TOY, info))
    check_refused(tmp_path, "toys.tar.gz", f"a link or a device, {info.name!r}")


@pytest.mark.parametrize("mode", [0o120777, 0o020666, 0o010644], ids=["link", "device", "pipe"])
def test_links_and_devices_in_a_zip_are_refused(publish, tmp_path, mode):
    name = "toy-1/images/link.jpg"
    publish(toys=zip_of(TOY | {name: b"/etc/passwd"}, {name: mode}))
    check_refused(tmp_path, "toys.zip", f"a link or a device, {name!r}")


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_a_bomb_is_refused(publish, tmp_path, pack):
    publish(toys=pack(TOY | {"toy-1/images/bomb.jpg": b"\0" * 2_000_000}), limit=1_000_000)
    check_refused(tmp_path, "toys.", "unpacks to more than 1,000,000 bytes")


def test_a_file_that_is_there_twice_is_refused(publish, tmp_path):
    publish(toys=tar_of(TOY, tarfile.TarInfo("toy-1/./images/cat.jpg")))
    check_refused(tmp_path, "toy-1/./images/cat.jpg' twice")


@pytest.mark.parametrize("content", [tar_of(TOY)[:100_000], zip_of(TOY)[:100_000], b"no archive at all", b"PK no zip"])
def test_a_damaged_archive_is_refused(publish, tmp_path, content):
    publish(toys=content)
    check_refused(tmp_path, "is damaged (")


def test_an_archive_without_all_files_never_becomes_the_folder(publish, tmp_path):
    publish(toys=tar_of({name: content for name, content in TOY.items() if "dog" not in name}))
    error_of(tmp_path, "images/dog.jpg is missing", "toys.tar.gz.part")
    assert everything_in(tmp_path) == {".downloads/toys.tar.gz.part"}


# The real archives, as listed in the package.


def test_published_archives_are_described_in_full():
    archives = [archive for benchmark in BENCHMARKS.values() for archive in benchmark.source.archives]
    assert len(archives) == 6
    for archive in archives:
        assert archive.url.startswith("https://")
        assert len(bytes.fromhex(archive.md5)) == 16
        assert archive.size < archive.unpacked_limit or archive.file_name == "annotations.tar.gz"
    assert len({archive.file_name for archive in archives}) == len(archives)


@pytest.mark.parametrize(
    ("name", "position", "member", "path"),
    [
        ("cifar10", 0, "cifar-10-batches-bin/test_batch.bin", "test_batch.bin"),
        ("cifar10", 0, "cifar-10-batches-bin/readme.html", None),
        ("cifar100", 0, "cifar-100-binary/fine_label_names.txt", "fine_label_names.txt"),
        ("tiny-imagenet", 0, "tiny-imagenet-200/train/n1/images/n1_0.JPEG", "train/n1/images/n1_0.JPEG"),
        ("tiny-imagenet", 0, "tiny-imagenet-200/test/images/test_0.JPEG", None),
        ("oxford-pets", 0, "images/Birman_1.jpg", "images/Birman_1.jpg"),
        ("oxford-pets", 0, "images/Abyssinian_100.mat", None),
        ("oxford-pets", 1, "./annotations/trainval.txt", "annotations/trainval.txt"),
        ("oxford-pets", 1, "annotations/trimaps/Birman_1.png", None),
        ("aircraft", 0, "fgvc-aircraft-2013b/data/images/0034309.jpg", "images/0034309.jpg"),
        ("aircraft", 0, "fgvc-aircraft-2013b/data/images_variant_val.txt", "images_variant_val.txt"),
        ("aircraft", 0, "fgvc-aircraft-2013b/evaluation.m", None),
    ],
)
def test_members_of_the_real_archives(name, position, member, path):
    found = fetch_module._wanted_path(BENCHMARKS[name].source.archives[position], member)
    assert (str(found) if found else None) == path
