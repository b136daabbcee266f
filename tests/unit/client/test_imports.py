from __future__ import annotations

import subprocess
import sys

HEAVY = ("trio", "cryptography", "starlette", "hypercorn", "prometheus_client")


def test_a_program_that_uses_a_daemon_needs_little() -> None:
    program = f"import pulsarcast.client, sys; print(sorted(set({HEAVY}) & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout.strip() == b"[]"


def test_the_client_knows_no_other_room_than_the_model() -> None:
    program = "import pulsarcast.client, sys; print(*sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    names = found.stdout.decode().split()
    rooms = {name.split(".")[1] for name in names if name.startswith("pulsarcast.")}
    assert rooms == {"client", "model"}
