"""What is in `deploy` works: alerts fire when they should, from meters that there are."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.docs.guides import BIN, ROOT
from tests.support.daemons import DaemonProcess

DEPLOY = ROOT / "deploy"
RULES = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))
TESTS = yaml.safe_load((DEPLOY / "alerts_test.yml").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
OPERATING = (ROOT / "docs/guides/operating.md").read_text(encoding="utf-8")


def promtool(*arguments: str) -> None:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is missing (Debian: prometheus)")
    done = subprocess.run(
        [found, *arguments], cwd=DEPLOY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_and_the_scrape_are_ones_that_prometheus_takes() -> None:
    promtool("check", "rules", "alerts.yml")
    # The token's file is on another machine.
    promtool("check", "config", "--syntax-only", "prometheus.yml")


def test_every_alert_fires_when_it_should_and_not_else() -> None:
    promtool("test", "rules", "alerts_test.yml")


def test_no_alert_is_without_a_test_of_both_kinds() -> None:
    fires: set[str] = set()
    silent: set[str] = set()
    for case in TESTS["tests"]:
        for each in case["alert_rule_test"]:
            (fires if each["exp_alerts"] else silent).add(each["alertname"])
    names = {rule["alert"] for rule in ALERTS}
    assert fires == names
    assert silent == names


def test_every_alert_says_how_bad_it_is_and_what_to_do_and_is_in_the_guide() -> None:
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "action"}
        assert f"`{rule['alert']}`" in OPERATING, f"operating.md does not name {rule['alert']}"
    named = set(re.findall(r"`(Pulsarcast[A-Z]\w+)`", OPERATING))
    assert named == {rule["alert"] for rule in ALERTS}


def test_every_meter_that_an_alert_asks_for_is_one_that_a_daemon_shows(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "home")
    daemon.start()
    try:
        headers = {"Authorization": f"Bearer {daemon.token}"}
        with httpx.Client(base_url=daemon.url, headers=headers) as client:
            client.get("/v1/status")  # so that requests have been counted
            text = client.get("/metrics").text
    finally:
        daemon.close()
    shown = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    wanted = {
        name for rule in ALERTS for name in re.findall(r"\bpulsarcast_\w+", str(rule["expr"]))
    }
    assert len(wanted) > 10
    assert wanted <= shown, f"no daemon has {sorted(wanted - shown)}"


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is missing (Debian: systemd)")
    # The program is where it would be installed, which is not here.
    text = (DEPLOY / "pulsarcast.service").read_text(encoding="utf-8")
    unit = tmp_path / "pulsarcast.service"
    unit.write_text(text.replace("/opt/pulsarcast/bin/pulsarcast", "/bin/true"), encoding="utf-8")
    done = subprocess.run(
        [found, "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "pulsarcast.service" in line]
    assert complaints == []
    assert done.returncode == 0, done.stderr


def test_the_daemon_ends_in_good_order_as_process_1(tmp_path: Path) -> None:
    """As in a container: the kernel gives process 1 no default for a signal."""
    alone = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets us make no space of processes")
    home, log = tmp_path / "home", tmp_path / "log"
    options = ["--home", str(home), "--listen", "/ip4/127.0.0.1/tcp/0", "--http", "127.0.0.1:0"]
    with log.open("wb") as output:
        outer = subprocess.Popen(
            [*alone, str(BIN / "pulsarcast"), "daemon", *options], stdout=output, stderr=output
        )
    try:
        deadline_s = time.monotonic() + 30
        while not (home / "http").exists():
            assert outer.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)
        (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        os.kill(int(inner), signal.SIGTERM)
        assert outer.wait(20) == 0
        assert '"message":"stopped"' in log.read_text()
    finally:
        outer.kill()
        outer.wait(5)


def test_the_unit_starts_a_command_that_there_is() -> None:
    text = (DEPLOY / "pulsarcast.service").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ExecStart=/opt/pulsarcast/bin/pulsarcast (.*)$", text, re.MULTILINE)
    name, option, home = command.split()
    assert (name, option) == ("daemon", "--home")
    (state,) = re.findall(r"^StateDirectory=(.*)$", text, re.MULTILINE)
    assert home == f"/var/lib/{state}"
