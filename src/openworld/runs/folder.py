"""The run folder: the interface between training and whatever reads its results."""

import csv
import fcntl
import functools
import io
import json
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from openworld.core.config import FEATURES_RUN, Config
from openworld.core.config_files import parsed_toml, restored_config, write_toml
from openworld.core.errors import UserError, named
from openworld.core.fields import all_names, replace
from openworld.core.files import write_whole
from openworld.core.formats import FORMAT, settings_from_1
from openworld.data.split import Split
from openworld.runs import checkpoint
from openworld.runs.checkpoint import Checkpoint, DamagedCheckpoint
from openworld.runs.environment import environment

START = "start.json"
"""What is known of the run with which this one began."""
REQUEST = "request.json"
"""What was asked for, while features are learnt and the run itself has not begun."""
ESTIMATE_FILES = ("estimate.json", "estimate.png")
LOCK = "lock"
"""Locked, not only there, while a process trains: the lock of a killed process is free by itself."""


class RunFolder:
    """Reads and writes the files of one run; what is replaced is replaced whole."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def new(cls, path: Path) -> "RunFolder":
        """A run to be, in a folder that is empty or not there; nothing is written before training can begin."""
        run = cls(path)
        if run.exists or run.request():
            resume, out = named("resume"), named("out")
            raise UserError(f"{path} holds a run already: add {resume} to continue it, or choose another {out}")
        if path.exists() and not (path.is_dir() and all(_is_leftover(entry) for entry in path.iterdir())):
            raise UserError(f"{path} exists and is not a run: choose another {named('out')}")
        return run

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        run = cls(path)
        if not run.exists:
            why = "it has no config.toml" if path.exists() else "there is no such folder"
            raise UserError(f"{path} is not a run: {why}")
        return run

    @property
    def exists(self) -> bool:
        return (self.path / "config.toml").is_file()

    @property
    def resume_command(self) -> str:
        return f"openworld train --resume --out {shlex.quote(str(self.path))}"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def has_checkpoints(self) -> bool:
        """Sound or not."""
        return any(checkpoint.newest_first(self.checkpoints))

    def start(self, name: str) -> "RunFolder":
        """The run with which this one begins, as `--start` calls it: in its own folder, or elsewhere."""
        return RunFolder(self.path / FEATURES_RUN if name == FEATURES_RUN else Path(name))

    @contextmanager
    def keep_request(self, requested: dict[str, Any], minutes: float | None) -> Iterator[None]:
        """While features are learnt, this alone tells what the run is going to be; where none were begun, it goes."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_json(REQUEST, {"format": FORMAT, "asked": requested, "minutes": minutes})
        try:
            yield
        except BaseException:
            if not self.start(FEATURES_RUN).exists:
                (self.path / REQUEST).unlink()
                with suppress(OSError):  # there was something else in it
                    self.path.rmdir()
            raise

    def request(self) -> dict[str, Any] | None:
        """What was asked for, where features were begun and the run itself was not; None if it cannot be understood."""
        match None if self.exists else self.read_json(REQUEST):
            case {"asked": dict(requested), "minutes": minutes, **rest} if requested.keys() <= {*all_names()}:
                return {"requested": requested if "format" in rest else settings_from_1(requested), "minutes": minutes}
        return None

    def record_start(self, other: "RunFolder") -> None:
        """Result and evidence of the run with which this one begins: later, or elsewhere, it may be gone."""
        if other.summary():
            self.write_json(START, {**other.summary(), **other.evidence()})

    def config(self) -> Config:
        path = self.path / "config.toml"
        config, dropped = restored_config(self._config_tree(), path)
        if dropped:
            tell_of_dropped(path, ", ".join(dropped))
        return config

    @property
    def format(self) -> int:
        """The version of its configuration, as it lies there."""
        return self._config_tree().get("format", 1)

    def _config_tree(self) -> dict[str, Any]:
        path = self.path / "config.toml"
        try:
            return parsed_toml(path.read_text(encoding="utf-8"), path)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: not a readable TOML file ({error})") from None

    def read(self, name: str) -> str | None:
        """The text of a file; what is no text at all is seen to be damaged by whoever wants to understand it."""
        try:
            return (self.path / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def split(self) -> str | None:
        """The split of a run that has begun."""
        split = self.read("split.json")
        if split is None and self.has_checkpoints:
            raise UserError(f"{self.path} is damaged: its split.json is gone, and with it which data is whose")
        return split

    def split_and_facts(self) -> tuple[Split, dict[str, Any]]:
        """The split of a run that has begun, and what else its split.json tells."""
        split = self.split()
        if split is None:
            raise UserError(f"{self.path} has not begun to train: it has no split.json")
        return Split.from_json(split, str(self.path / "split.json"))

    @contextmanager
    def lock_for_training(self, config: Config, split: str, device: torch.device) -> Iterator[None]:
        """Say what the run is, before its first step; within this context no other process may work in the folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self.path}: another process is training in this folder") from None
            if self.exists and replace(self.config(), {"data": config.data}) != config:
                begun = f"{self.path}: another run has begun in this folder meanwhile"
                raise UserError(f"{begun}: choose another {named('out')}")
            self.write("config.toml", write_toml(config))  # first: it makes the folder a run, the rest follows from it
            self.write("split.json", split)
            sessions = self.read_json("environment.json") or {"sessions": []}
            sessions["sessions"].append(environment(device))
            self.write_json("environment.json", sessions)
            (self.path / REQUEST).unlink(missing_ok=True)
            yield

    def record_seconds(self, seconds: float) -> None:
        """How long the run has trained, where no epoch's line of metrics tells."""
        sessions = self.read_json("environment.json")
        if sessions:
            sessions["sessions"][-1]["run_seconds"] = seconds
            self.write_json("environment.json", sessions)

    def seconds(self) -> float:
        """How long it has trained: by its last epoch, or by what was remembered."""
        sessions = (self.read_json("environment.json") or {"sessions": []})["sessions"]
        stops = [session["run_seconds"] for session in sessions if "run_seconds" in session]
        return max([0.0, *stops, *(line["seconds"] for line in self.metrics())])

    def write(self, name: str, content: str | bytes) -> None:
        write_whole(self.path / name, content)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        self.write(name, json.dumps(content, indent=1) + "\n")

    def read_json(self, name: str) -> Any:
        """The content of a JSON file, or None where it is missing or damaged and can be done without."""
        try:
            return json.loads(self.read(name) or "null")
        except ValueError:
            return None

    def summary(self) -> dict[str, Any] | None:
        """The result of a finished run."""
        return self.read_json("summary.json")

    def evidence(self) -> dict[str, Any]:
        """How a result came about; a list for each time the run was started, empty where nobody knows any more."""
        sessions = (self.read_json("environment.json") or {"sessions": []})["sessions"]
        return {
            "command": [shlex.join(session["command"]) for session in sessions],
            "environment": sessions,
            "config": self.read("config.toml"),
            "epochs": self.metrics(),
        }

    def estimated_classes(self) -> int | None:
        """What was estimated for the run, where anything was."""
        return (self.read_json("estimate.json") or {"num_classes": None})["num_classes"]

    def newest_checkpoint(self, warn) -> Checkpoint | None:
        """The newest checkpoint that is sound; damaged ones are named, left alone and passed over."""
        for path in checkpoint.newest_first(self.checkpoints):
            try:
                return checkpoint.load(path)
            except DamagedCheckpoint as error:
                warn(f"{error}; trying the one before")
        return None

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; a last line cut short by a crash is passed over."""
        lines = []
        for line in (self.read("metrics.jsonl") or "").splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
        return lines

    def rewind_metrics(self, step: int) -> None:
        """Forget the lines after a step: the run goes on from there."""
        kept = [json.dumps(line) + "\n" for line in self.metrics() if line["step"] <= step]
        self.write("metrics.jsonl", "".join(kept))

    def add_metrics(self, line: dict[str, Any]) -> None:
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def write_csv(self, name: str, header: list[str], rows: Iterable[Iterable[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text).writerows([header, *rows])
        self.write(name, text.getvalue())


@functools.cache
def tell_of_dropped(path: Path, keys: str) -> None:
    """Once in a process."""
    print(f"warning: {path} sets {keys}, which this openworld no longer has: ignored", file=sys.stderr)


def _is_leftover(path: Path) -> bool:
    """Whether a file in a folder is only what a run left that ended before it began."""
    return path.name in (LOCK, FEATURES_RUN, *ESTIMATE_FILES) or path.suffix == ".tmp"


def new_path(data: str, what: str, seed: int) -> Path:
    """A folder under runs/ that is not there yet, nor will be by another process that begins in the same second."""
    name = Path(data).stem.replace(":", "-")
    stem = f"{name}-{what}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    path, number = Path("runs") / stem, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{stem}-{number}"
    return path
