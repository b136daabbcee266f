"""How commands show that they get on: on a terminal only."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm


class Bars:
    """A progress bar for whatever is being done."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._what = ""

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, what: str, done: int, total: int) -> None:
        """Move the bar on, or begin the next one."""
        if what != self._what:
            if self._bar is not None:
                self._bar.close()
            self._bar = tqdm(total=total, desc=what, disable=None, leave=False)
            self._what = what
        self._bar.update(done - self._bar.n)
