"""The API held to its own description: by hand, and by schemathesis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pulsarcast.client import Client
from pulsarcast.daemon.app import ALL
from pulsarcast.daemon.openapi import describe
from tests.support.daemons import DaemonProcess

# 422 is what we say to a request that is well said and cannot be done, 410 to one that comes late,
# 431 to one whose head is too long.
CONFIG = """
[parameters]
"path.topic" = "weather"
"path.name" = "bob"

[checks]
positive_data_acceptance.expected-statuses = [
    "2xx", "3xx", "401", "403", "404", "409", "410", "413", "422", "431", "5xx"
]
negative_data_rejection.expected-statuses = [
    "400", "401", "403", "404", "406", "415", "422", "428", "431", "5xx"
]
"""


def test_every_operation_is_described_with_what_it_takes_and_answers() -> None:
    described = describe(ALL)
    for operation in ALL:
        found = described["paths"][operation.path][operation.method.lower()]
        assert found["operationId"] == operation.name
        assert str(operation.status) in found["responses"]
        assert ("requestBody" in found) == (operation.body is not None)
        assert (found.get("security") == []) == (operation.scope is None)
    names = [operation.name for operation in ALL]
    assert len(set(names)) == len(names)
    json.dumps(described)


@pytest.mark.timeout(900)
def test_schemathesis_finds_no_fault(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "home")
    daemon.start()
    try:
        with Client(daemon.url, daemon.token) as client:
            # Something that it can do things to.
            client.create_topic("weather", alias="weather")
            client.publish("weather", "sunny")
            with client.subscribe("weather", "bob", start="beginning") as events:
                next(events)
        config = tmp_path / "schemathesis.toml"
        config.write_text(CONFIG)
        ran = subprocess.run(
            [
                str(Path(sys.executable).with_name("schemathesis")),
                f"--config-file={config}",
                "run",
                f"{daemon.url}/v1/openapi.json",
                "--header",
                f"Authorization: Bearer {daemon.token}",
                "--checks",
                "all",
                "--max-examples",
                os.environ.get("PULSARCAST_EXAMPLES", "20"),
                "--exclude-path-regex",
                "subscribe$",
                "--request-timeout",
                "20",
                "--no-color",
            ],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
            cwd=tmp_path,
        )
        assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    finally:
        daemon.close()
