"""Nodes in processes of their own, on machines of a lab, that tests tell what to do."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.support.internet import Machine

WORKER: Final = Path(__file__).with_name("node_worker.py")
ANSWER_S_MAX: Final = 120.0
"""It only ends what hangs."""


class RemoteNode:
    """A node on a machine: `node_worker` in its namespace."""

    def __init__(self, machine: Machine, home: Path, **options: Any) -> None:
        self.name = home.name
        self.machine = machine
        self.seen: dict[str, float] = {}
        """Events as texts, and when they came."""
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._numbers = count(1)
        options = {"listen": ["/ip4/0.0.0.0/tcp/4420"], **options}
        self.log = home.with_suffix(".log")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                machine.host.inside([sys.executable, str(WORKER), str(home), json.dumps(options)]),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        machine.host.started.append(self._process)
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def begin_to_stop(self) -> None:
        """Let the node end in good order; `wait_until_ended` waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait_until_ended(self) -> None:
        """Wait until the process is gone."""
        self._process.wait(ANSWER_S_MAX)

    def wait_until_up(self) -> None:
        """Wait until the node runs."""
        up = self._wait(lambda: self._answers.get(0), ANSWER_S_MAX)
        assert up is not None, f"{self.name} did not start: {self.log.read_text()[-2000:]}"
        self.peer: str = up["peer"]
        self.addresses: list[str] = up["addresses"]

    def tell(self, command: str, **words: Any) -> Asked:
        """Ask for something without waiting for it."""
        number = next(self._numbers)
        asked = Asked(self, number, time.monotonic())
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([number, command, words]).encode() + b"\n")
        self._process.stdin.flush()
        return asked

    def ask(self, command: str, **words: Any) -> dict[str, Any]:
        """Ask for something; the answer, and in `took_s` how long it took."""
        return self.tell(command, **words).answer()

    def has_seen(self, text: str, seconds: float) -> bool:
        """Whether an event comes within some time."""
        return bool(self._wait(lambda: text in self.seen, seconds))

    def answer_to(self, number: int, seconds: float) -> dict[str, Any] | None:
        """The answer to a command, once it is there."""
        answer: dict[str, Any] | None = self._wait(lambda: self._answers.get(number), seconds)
        return answer

    def _wait(self, look: Callable[[], Any], seconds: float) -> Any:
        with self._changed:
            self._changed.wait_for(look, seconds)
            return look()

    def _read(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdin, self._process.stdout:
            for line in self._process.stdout:
                said = json.loads(line)
                with self._changed:
                    if "event" in said:
                        self.seen.setdefault(said["event"], said["s"])
                    else:
                        self._answers[said.get("to", 0)] = said
                    self._changed.notify_all()


class Asked:
    """A command whose answer may come later."""

    def __init__(self, node: RemoteNode, number: int, asked_s: float) -> None:
        self._node = node
        self._number = number
        self._asked_s = asked_s

    @property
    def is_answered(self) -> bool:
        """Whether the answer is there."""
        return self._node.answer_to(self._number, 0.0) is not None

    def answer(self) -> dict[str, Any]:
        """Wait for the answer."""
        answer = self._node.answer_to(self._number, ANSWER_S_MAX)
        assert answer is not None, f"{self._node.name} does not answer"
        assert "error" not in answer, f"{self._node.name}: {answer['error']}"
        return {**answer, "took_s": answer["s"] - self._asked_s}
