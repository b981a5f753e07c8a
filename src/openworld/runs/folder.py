"""The run folder: the interface between training and the code that reads its results."""

import csv
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
from filelock import FileLock, Timeout

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
"""File with the result of the run from which this one started."""
REQUEST = "request.json"
"""File with the requested settings. It exists while features are learnt and the run itself has not started."""
ESTIMATE_FILES = ("estimate.json", "estimate.png")
LOCK = "lock"
"""File that a process locks while it trains. The system releases the lock if the process is killed."""


class RunFolder:
    """Reads and writes the files of one run. It replaces a file as a whole, never in part."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def new(cls, path: Path) -> "RunFolder":
        """Return a new run in an empty or missing folder. This writes nothing; training does, once it can start."""
        run = cls(path)
        if run.exists or run.request():
            resume, out = named("resume"), named("out")
            raise UserError(f"{path} already contains a run; add {resume} to continue it, or choose another {out}")
        if path.exists() and not (path.is_dir() and all(_is_leftover(entry) for entry in path.iterdir())):
            raise UserError(f"{path} exists but is not a run folder; choose another {named('out')}")
        return run

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Return an existing run, or raise a UserError if the folder contains none."""
        run = cls(path)
        if not run.exists:
            reason = "it has no config.toml" if path.exists() else "the folder does not exist"
            raise UserError(f"{path} is not a run folder: {reason}")
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
        """Whether there is any checkpoint, damaged or not."""
        return any(checkpoint.newest_first(self.checkpoints))

    def start(self, name: str) -> "RunFolder":
        """Return the run that `--start` names: the features in this folder, or a run elsewhere."""
        return RunFolder(self.path / FEATURES_RUN if name == FEATURES_RUN else Path(name))

    @contextmanager
    def keep_request(self, requested: dict[str, Any], minutes: float | None) -> Iterator[None]:
        """Keep the requested settings in a file while features are learnt.

        Delete the file on an error before learning has started.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_json(REQUEST, {"format": FORMAT, "asked": requested, "minutes": minutes})
        try:
            yield
        except BaseException:
            if not self.start(FEATURES_RUN).exists:
                (self.path / REQUEST).unlink()
                with suppress(OSError):  # the folder may contain other files
                    self.path.rmdir()
            raise

    def request(self) -> dict[str, Any] | None:
        """Return the settings that `keep_request` wrote, or None if they are absent or damaged.

        Once the run itself has started, return None.
        """
        match None if self.exists else self.read_json(REQUEST):
            case {"asked": dict(requested), "minutes": minutes, **rest} if requested.keys() <= {*all_names()}:
                return {"requested": requested if "format" in rest else settings_from_1(requested), "minutes": minutes}
        return None

    def record_start(self, other: "RunFolder") -> None:
        """Copy the result and evidence of the run from which this one starts, because that run may be deleted later."""
        if other.summary():
            self.write_json(START, {**other.summary(), **other.evidence()})

    def config(self) -> Config:
        """Return the configuration. Print a warning if it contains settings that no longer exist."""
        path = self.path / "config.toml"
        config, dropped = restored_config(self._config_tree(), path)
        if dropped:
            warn_about_dropped(path, ", ".join(dropped))
        return config

    @property
    def format(self) -> int:
        """The format version of config.toml."""
        return self._config_tree().get("format", 1)

    def _config_tree(self) -> dict[str, Any]:
        path = self.path / "config.toml"
        try:
            return parsed_toml(path.read_text(encoding="utf-8"), path)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read as a TOML file ({error})") from None

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it is missing.

        Bytes that are not valid UTF-8 are replaced, so the caller must detect a damaged file.
        """
        try:
            return (self.path / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def split(self) -> str | None:
        """Return the text of split.json, or None before training has started."""
        split = self.read("split.json")
        if split is None and self.has_checkpoints:
            missing = "split.json is missing, so openworld cannot tell which samples were labelled"
            raise UserError(f"{self.path} is damaged: {missing}. Train the run again")
        return split

    def split_and_facts(self) -> tuple[Split, dict[str, Any]]:
        """Return the split of a run, and the other facts in split.json."""
        split = self.split()
        if split is None:
            raise UserError(
                f"{self.path} has no split.json: training has not started. Start with: {self.resume_command}"
            )
        return Split.from_json(split, str(self.path / "split.json"))

    @contextmanager
    def lock_for_training(self, config: Config, split: str, device: torch.device) -> Iterator[None]:
        """Write the files that define the run. Within this context no other process can train in the folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if self.exists and replace(self.config(), {"data": config.data}) != config:
                started = f"{self.path}: another process has started a different run in this folder"
                raise UserError(f"{started}; choose another {named('out')}")
            self.write("config.toml", write_toml(config))  # first: it makes the folder a run and defines the rest
            self.write("split.json", split)
            sessions = self.read_json("environment.json") or {"sessions": []}
            sessions["sessions"].append(environment(device))
            self.write_json("environment.json", sessions)
            (self.path / REQUEST).unlink(missing_ok=True)
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the folder. The system releases it when the process ends, also if it is killed."""
        lock = FileLock(self.path / LOCK, blocking=False)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(f"{self.path}: another process is training in this folder") from None
        try:
            yield
        finally:
            lock.release()

    def record_seconds(self, seconds: float) -> None:
        """Record how long the run has trained, for a stop between two lines of metrics."""
        sessions = self.read_json("environment.json")
        if sessions:
            sessions["sessions"][-1]["run_seconds"] = seconds
            self.write_json("environment.json", sessions)

    def seconds(self) -> float:
        """Return how long the run has trained, from its metrics and from `record_seconds`."""
        sessions = (self.read_json("environment.json") or {"sessions": []})["sessions"]
        stops = [session["run_seconds"] for session in sessions if "run_seconds" in session]
        return max([0.0, *stops, *(line["seconds"] for line in self.metrics())])

    def write(self, name: str, content: str | bytes) -> None:
        write_whole(self.path / name, content)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        self.write(name, json.dumps(content, indent=1) + "\n")

    def read_json(self, name: str) -> Any:
        """Return the content of an optional JSON file, or None if it is missing or damaged."""
        try:
            return json.loads(self.read(name) or "null")
        except ValueError:
            return None

    def summary(self) -> dict[str, Any] | None:
        """Return the result of a finished run, or None if the run is not finished."""
        return self.read_json("summary.json")

    def total_seconds(self) -> float:
        """Return the time of a finished run, with that of the run from which it started."""
        stages = [self.summary(), self.read_json(START)]
        return round(sum(stage["seconds"] for stage in stages if stage), 2)

    def evidence(self) -> dict[str, Any]:
        """Return what produced the result of the run.

        `command` and `environment` have an entry for each start of the run. They are empty if environment.json is lost.
        """
        sessions = (self.read_json("environment.json") or {"sessions": []})["sessions"]
        return {
            "command": [shlex.join(session["command"]) for session in sessions],
            "environment": sessions,
            "config": self.read("config.toml"),
            "epochs": self.metrics(),
        }

    def estimated_classes(self) -> int | None:
        """Return the estimated number of classes, or None if nothing was estimated."""
        return (self.read_json("estimate.json") or {"num_classes": None})["num_classes"]

    def newest_checkpoint(self, warn) -> Checkpoint | None:
        """Return the newest undamaged checkpoint, or None. Warn about damaged ones and leave them in place."""
        for path in checkpoint.newest_first(self.checkpoints):
            try:
                return checkpoint.load(path)
            except DamagedCheckpoint as error:
                warn(f"{error}; trying an older checkpoint")
        return None

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, without a last line that a crash cut short."""
        lines = []
        for line in (self.read("metrics.jsonl") or "").splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
        return lines

    def rewind_metrics(self, step: int) -> None:
        """Delete the lines of metrics after a step, because the run resumes from there."""
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
def warn_about_dropped(path: Path, keys: str) -> None:
    """Warn about settings that no longer exist, once in a process."""
    print(f"warning: {path}: ignoring {keys}, which this version of openworld does not have", file=sys.stderr)


def _is_leftover(path: Path) -> bool:
    """Return whether a file is left over from a run that stopped before it started to train."""
    return path.name in (LOCK, FEATURES_RUN, *ESTIMATE_FILES) or path.suffix == ".tmp"


def new_path(data: str, what: str, seed: int) -> Path:
    """Return a new path under runs/. It contains the process id, so processes that start together do not clash."""
    name = Path(data).stem.replace(":", "-")
    stem = f"{name}-{what}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    path, number = Path("runs") / stem, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{stem}-{number}"
    return path
