"""Stopping politely: a signal ends the run at the next step, with a checkpoint; a second one at once."""

import os
import signal
import threading


class Interrupted(Exception):
    """A signal requested the run to stop, and it has saved its state."""

    def __init__(self, signum: int, message: str):
        super().__init__(message)
        self.exit_code = 128 + signum


class StopSignals:
    """Within this context SIGINT and SIGTERM are remembered instead of acted on; only the main thread hears of them."""

    def __init__(self):
        self.received: int | None = None

    def __enter__(self) -> "StopSignals":
        hears = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if hears else ()
        self._before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def obey(self, step: int) -> None:
        """Where all is saved that was done."""
        if self.received is not None:
            raise Interrupted(self.received, f"stopped at step {step}")

    def _handle(self, number: int, _frame: object) -> None:
        if self.received is not None:
            os._exit(128 + number)
        self.received = number
