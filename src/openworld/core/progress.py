"""Progress display during a run: a bar on a terminal, occasional plain lines elsewhere."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_REFRESHES = 0.25
SECONDS_BEFORE_A_BAR = 0.5
WIDE = 100
"""Width of a terminal, in characters, from which the bar also shows the speed."""


def duration(seconds: float | None) -> str:
    """Return a duration as text, in a unit that fits.

    >>> duration(80), duration(300), duration(5 * 3600), duration(837_000), duration(None)
    ('80 s', '5.0 min', '5.0 h', '9.7 days', '-')
    """
    if seconds is None:
        return "-"
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


class CountDisplay:
    """Show on standard error how much of a task is done: a bar on a terminal, occasional lines elsewhere.

    A task that ends at once shows nothing.
    """

    def __init__(self, label: str, quiet: bool, unit: str = ""):
        self.label, self.quiet, self.unit = label, quiet, unit
        self.began = self.last_shown = time.monotonic()
        self.bar: Progress | None = None
        self.task: Any = None

    def __enter__(self) -> "CountDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def tell(self, done: int, total: int | None) -> None:
        """Show that `done` of `total` items are done."""
        now = time.monotonic()
        if self.quiet or now - self.began < SECONDS_BEFORE_A_BAR:
            return
        rate = done / (now - self.began)
        if not sys.stderr.isatty():
            if now - self.last_shown >= SECONDS_BETWEEN_LINES:
                self.last_shown = now
                of_total = f" of {total:,}" if total else ""
                print(f"{self.label}: {done:,}{of_total}{self.unit}, {rate:,.0f}/s", file=sys.stderr, flush=True)
            return
        if self.bar is None:
            columns = TextColumn(self.label), BarColumn(), TextColumn("{task.fields[status]}"), TimeRemainingColumn()
            self.bar = Progress(*columns, console=Console(stderr=True))
            self.task = self.bar.add_task(self.label, status="")
            self.bar.start()
        self.bar.update(self.task, completed=done, total=total, status=f"{done:,}{self.unit}, {rate:,.0f}/s")


class ProgressDisplay:
    """Show steps, loss, accuracy and speed on standard error, unless `quiet`."""

    def __init__(self, total: int, images_per_step: int, quiet: bool):
        self.total, self.images_per_step, self.quiet = total, images_per_step, quiet
        self.begin(0)
        self.accuracy = ""
        self.bar: Progress | None = None
        if not quiet and sys.stderr.isatty():
            self.bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(bar_width=10),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[status]}"),
                console=Console(stderr=True),
            )
            self.task = self.bar.add_task("train", total=total, status="")

    def begin(self, step: int) -> None:
        """Measure the speed and the remaining time from this step and moment on."""
        self.start = step
        self.began = self.next_due = time.monotonic()

    def __enter__(self) -> "ProgressDisplay":
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    @property
    def due(self) -> bool:
        """Whether it is time for an update. Callers check it first, because an update needs values from the device."""
        return not self.quiet and time.monotonic() >= self.next_due

    def show(self, step: int, loss: float, scores: dict[str, float | None] | None = None) -> None:
        """Update the bar or print a line. New accuracies are shown from now on."""
        if scores:  # there are none if the true classes are unknown
            known = [f"{name} {scores[name]:.1f}" for name in ("seen", "novel", "all") if scores[name] is not None]
            self.accuracy = "".join(f"{text} " for text in known) + " "
        now = time.monotonic()
        done, elapsed = step - self.start, max(now - self.began, 1e-9)
        status, speed = f"loss {loss:.3f}  {self.accuracy}", f"{done * self.images_per_step / elapsed:,.0f} images/s"
        if self.bar:
            is_wide = self.bar.console.width >= WIDE
            self.bar.update(self.task, completed=step, status=f"{status}{speed}" if is_wide else status)
            self.next_due = now + SECONDS_BETWEEN_REFRESHES
        elif not self.quiet:
            left = duration((self.total - step) * elapsed / max(done, 1))
            print(f"step {step}/{self.total}  {status}{speed}  {left} left", file=sys.stderr, flush=True)
            self.next_due = now + SECONDS_BETWEEN_LINES

    def say(self, message: str) -> None:
        """Print what is happening now on standard error, unless `quiet`."""
        if not self.quiet:
            print(message, file=sys.stderr, flush=True)

    def warn(self, message: str) -> None:
        """Print a warning on standard error without breaking the bar."""
        console = self.bar.console if self.bar else Console(stderr=True, soft_wrap=True)
        console.print(f"warning: {message}", markup=False, highlight=False)
