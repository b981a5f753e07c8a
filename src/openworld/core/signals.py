"""Stop a run on a signal: the first one ends it at the next step, with a checkpoint, the second one at once."""

import os
import signal
import threading


class Interrupted(Exception):
    """A signal stopped the run, which has saved its state."""

    def __init__(self, signum: int, message: str):
        super().__init__(message)
        self.exit_code = 128 + signum


class StopSignals:
    """A context that records SIGINT and SIGTERM instead of ending the process.

    Outside the main thread it does nothing, because Python delivers signals only there.
    """

    def __init__(self):
        self.received: int | None = None

    def __enter__(self) -> "StopSignals":
        is_main_thread = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if is_main_thread else ()
        self._before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def obey(self, step: int) -> None:
        """Raise `Interrupted` if a signal has arrived. Call this only after the state of `step` is saved."""
        if self.received is not None:
            raise Interrupted(self.received, f"stopped at step {step}")

    def _handle(self, number: int, _frame: object) -> None:
        if self.received is not None:
            os._exit(128 + number)
        self.received = number
