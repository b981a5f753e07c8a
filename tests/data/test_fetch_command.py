"""`openworld data fetch` on the command line."""

import pytest
from fake_site import TOY, tar_of
from test_fetch import WHOLE, everything_in, publish, site  # noqa: F401
from worlds import run


def test_a_benchmark_is_fetched_and_then_is_there(publish, tmp_path, capsys, monkeypatch):  # noqa: F811
    publish(toys=tar_of(TOY))
    monkeypatch.setattr("openworld.core.progress.SECONDS_BEFORE_A_BAR", 0)
    monkeypatch.setattr("openworld.core.progress.SECONDS_BETWEEN_LINES", 0)
    assert run("data", "fetch", "toy", "--data-dir", tmp_path) == 0
    captured = capsys.readouterr()
    assert captured.out == f"toy is ready: {tmp_path / 'toys/toy'}\n"
    assert "downloading toys.tar.gz: " in captured.err
    assert "unpacking toys.tar.gz: " in captured.err
    assert everything_in(tmp_path) == WHOLE
    assert run("data", "fetch", "toy", "--data-dir", tmp_path) == 0
    assert capsys.readouterr().out == f"toy was already downloaded: {tmp_path / 'toys/toy'}\n"


@pytest.mark.parametrize(
    ("content", "md5", "answer"),
    [(tar_of({"../evil.txt": b"x"}), None, "toys.tar.gz"), (tar_of(TOY), "0" * 32, "md5")],
)
def test_what_is_not_as_published_leaves_nothing(publish, tmp_path, capsys, content, md5, answer):  # noqa: F811
    publish(toys=content, md5=md5)
    assert run("data", "fetch", "toy", "--data-dir", tmp_path / "new") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert answer in message
    assert everything_in(tmp_path) == set()
