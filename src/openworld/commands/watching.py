"""Show the progress of many runs: a live table on a terminal, a line for each finished run elsewhere."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from openworld.commands.common import fail
from openworld.compute.runtime import Runtime
from openworld.core.errors import UserError
from openworld.core.progress import duration
from openworld.core.signals import Interrupted
from openworld.ops.metrics import score_text
from openworld.planning.sweep import Outcome, Trial, carry_out
from openworld.results.scores import PARTS
from openworld.runs.folder import RunFolder

ROWS_SHOWN = 20
"""Number of runs in the live table: the present one, and those before and after it."""


class Watch:
    """The runs of a sweep. It reads their progress from their folders, as any other program could."""

    def __init__(self, trials: Sequence[Trial], quiet: bool):
        self.trials, self.quiet = trials, quiet
        self.current: tuple[Trial, RunFolder] | None = None
        self.outcomes: dict[str, Outcome] = {}
        self.console = Console(stderr=True, markup=False, emoji=False)
        is_live = not quiet and self.console.is_terminal
        self.live = Live(get_renderable=self.table, console=self.console, refresh_per_second=1) if is_live else None

    def __enter__(self) -> "Watch":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def begin(self, trial: Trial, run: RunFolder) -> None:
        """Note that this run begins."""
        self.current = trial, run

    def end(self, outcome: Outcome) -> None:
        """Note what came of the present run, and print it if there is no live table."""
        self.outcomes[outcome.trial.name], self.current = outcome, None
        if not self.quiet and not self.live:
            cells = " ".join(self.cells(outcome.trial))
            print(f"{len(self.outcomes)}/{len(self.trials)} {cells}", file=sys.stderr, flush=True)

    def table(self) -> Table:
        """Return the live table."""
        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
        for column in ("run", "", "Seen", "Novel", "All"):
            table.add_column(column, justify="left" if column in ("run", "") else "right", overflow="fold")
        first = max(0, min(len(self.outcomes) - ROWS_SHOWN // 2, len(self.trials) - ROWS_SHOWN))
        for trial in self.trials[first : first + ROWS_SHOWN]:
            table.add_row(*self.cells(trial))
        table.caption = f"{len(self.outcomes)} of {len(self.trials)} runs finished"
        return table

    def cells(self, trial: Trial) -> tuple[str, ...]:
        """Return name, state and accuracies of a run."""
        outcome = self.outcomes.get(trial.name)
        if outcome and outcome.summary:
            scores = [score_text(outcome.summary[part]) for part in PARTS]
            return trial.name, duration(outcome.summary["seconds"]), *scores
        if outcome:
            return trial.name, f"failed: {outcome.failure}", "", "", ""
        if self.current and self.current[0] is trial:
            return trial.name, *progress_of(self.current[1])
        return trial.name, "", "", "", ""


def progress_of(run: RunFolder) -> tuple[str, ...]:
    """Return the state of a run and its latest accuracies, from its folder."""
    lines: list[dict[str, Any]] = run.metrics()
    if not run.exists:
        return "preparing", "", "", ""
    if not lines:
        return "training", "", "", ""
    scores = lines[-1]["average"] or dict.fromkeys(PARTS)
    return f"step {lines[-1]['step']:,}", *(score_text(scores[part]) for part in PARTS)


def train_all(
    trials: Sequence[Trial], folder: Path, runtime: Runtime, quiet: bool = False, minutes: float | None = None
) -> list[Outcome]:
    """Train all trials and show their progress. After a stop, the same command continues."""
    try:
        with Watch(trials, quiet) as watch:
            outcomes = carry_out(trials, folder, runtime, minutes, watch.begin, watch.end)
    except Interrupted as stopped:
        fail(f"{stopped}; the same command continues, and skips the runs that are finished", stopped.exit_code)
    except KeyboardInterrupt:  # not during training, which raises Interrupted instead
        fail("interrupted; the same command continues, and skips the runs that are finished", 130)
    if all(outcome.failure for outcome in outcomes):
        raise UserError(outcomes[0].failure)
    return outcomes


def refuse_failures(outcomes: Sequence[Outcome]) -> None:
    """Raise a UserError if some runs failed. Call it after their results are shown."""
    failures = [outcome for outcome in outcomes if outcome.failure]
    if failures:
        first = f"{failures[0].trial.name}: {failures[0].failure}"
        raise UserError(f"{len(failures)} of {len(outcomes)} runs failed; the first is {first}")
