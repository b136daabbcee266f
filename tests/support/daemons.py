"""Daemons as processes of their own, for tests: started, killed, and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 15.0

_PROGRAM: Final = """
import logging
import sys
from pathlib import Path
import trio
from pulsarcast.daemon.daemon import run
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
from pulsarcast.daemon.settings import load_settings
home = Path(sys.argv[1])
flags = {
    "node.listen": ["/ip4/127.0.0.1/tcp/0"],
    "http.address": f"127.0.0.1:{sys.argv[2]}",
    "http.hosts": sys.argv[3:],
}
trio.run(run, home, load_settings(home, {}, flags=flags))
"""


class DaemonProcess:
    """A daemon on loopback, in a home of its own."""

    def __init__(self, home: Path, *, hosts: Sequence[str] = ()) -> None:
        self.home = home
        self._hosts = hosts
        self.port = 0
        """Chosen by the system at the first start, and kept."""
        self._process: subprocess.Popen[bytes] | None = None
        self._log = home.parent / f"{home.name}.log"

    @property
    def url(self) -> str:
        """Where it can be reached."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The operator's token."""
        return (self.home / "token").read_text(encoding="ascii").strip()

    def start(self) -> None:
        """Start it, and wait until it can be reached."""
        assert self._process is None, "one at a time"
        place = self.home / "http"
        place.unlink(missing_ok=True)  # One that was killed leaves it.
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(self.home), str(self.port), *self._hosts],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline_s = time.monotonic() + START_S_MAX
        while not place.exists():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise AssertionError(f"the daemon did not start: {self.log()[-4000:]}")
            time.sleep(0.05)
        self.port = int(place.read_text(encoding="ascii").strip().rpartition(":")[2])

    def kill(self) -> None:
        """Let it die without a word, as of a power cut."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Let it end in good order; its exit code."""
        return self._end(signal.SIGTERM)

    def log(self) -> str:
        """What it said."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S_MAX)
            raise AssertionError(f"the daemon did not end: {self.log()[-4000:]}") from None

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        with suppress(AssertionError):
            self.kill()
