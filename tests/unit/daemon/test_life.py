"""The daemon as a process: it starts, says what it does, and ends in good order."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pulsarcast.client import Client
from pulsarcast.daemon.daemon import _delete_oldest

LOCAL = ("--listen", "/ip4/127.0.0.1/tcp/0", "--http", "127.0.0.1:0")


@contextmanager
def running(home: Path, *words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """`pulsarcast daemon`, as an operator starts it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pulsarcast", "daemon", "--home", str(home), *LOCAL, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        deadline_s = time.monotonic() + 30
        while not (home / "http").exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
        process.wait(10)


def end(process: subprocess.Popen[str]) -> list[dict[str, str]]:
    """Ask it to end, as an init system does; what it logged."""
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    return [json.loads(line) for line in errors.splitlines()]


def test_it_ends_in_good_order_also_while_somebody_listens(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home) as process:
        with Client(
            home=home, url=(home / "http").read_text().strip(), token=token(home)
        ) as client:
            topic = client.create_topic("weather")
            with client.subscribe(topic.id, "bob", patience_s=1) as events:
                client.publish(topic.id, "sunny")
                assert next(events).payload == b"sunny"
                began_s = time.monotonic()
                end(process)
                assert time.monotonic() - began_s < 15
    assert not (home / "http").exists()
    # And it starts again where it stopped.
    with running(home) as process:
        with Client(url=(home / "http").read_text().strip(), token=token(home)) as client:
            assert [event.payload for event in client.history(topic.id)] == [b"sunny"]
            assert client.status().incarnation == 2
        end(process)


def test_it_ends_also_while_it_still_starts(tmp_path: Path) -> None:
    """A start waits for the first peer; who asks it to end meanwhile is heard."""
    home = tmp_path / "home"
    nobody = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X"
    words = ("daemon", "--home", str(home), *LOCAL, "--bootstrap", nobody)
    process = subprocess.Popen(
        [sys.executable, "-m", "pulsarcast", *words],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + 20
    while not (home / "incarnation").exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    time.sleep(0.5)
    began_s = time.monotonic()
    end(process)
    assert time.monotonic() - began_s < 5
    assert not (home / "http").exists()


def test_readers_without_a_name_do_not_outlive_a_crash(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home) as process:
        with Client(url=(home / "http").read_text().strip(), token=token(home)) as client:
            topic = client.create_topic("weather")
            client.publish(topic.id, "sunny")
            named = client.subscribe(topic.id, "bob", start="beginning")
            nameless = client.subscribe(topic.id, start="beginning")
            assert (next(named).payload, next(nameless).payload) == (b"sunny", b"sunny")
            assert len(client.topics()[0].readers) == 2
            process.kill()
            process.wait(10)
            for events in (named, nameless):
                events.close()
    (home / "http").unlink()
    with running(home) as process:
        with Client(url=(home / "http").read_text().strip(), token=token(home)) as client:
            assert [reader.name for reader in client.topics()[0].readers] == ["bob"]
        end(process)


def test_closed_connections_are_let_go_of(tmp_path: Path) -> None:
    with running(tmp_path / "home") as process:
        url = (tmp_path / "home" / "http").read_text().strip()
        files = Path(f"/proc/{process.pid}/fd")
        before = len(list(files.iterdir()))
        for _ in range(50):
            urllib.request.urlopen(f"{url}/v1/health", timeout=10).close()
        time.sleep(0.5)
        assert len(list(files.iterdir())) < before + 10
        end(process)


def token(home: Path) -> str:
    return (home / "token").read_text().strip()


def test_logs_are_json_by_room_and_hold_nothing_secret(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home, "--log-level", "debug") as process:
        url = (home / "http").read_text().strip()
        with Client(url=url, token=token(home)) as client:
            topic = client.create_topic("weather")
            client.publish(topic.id, "a payload that nobody else may see")
            made = client.create_token("reader", ["read"])
            client.status()
        lines = end(process)
    assert {line["room"] for line in lines} >= {"daemon"}
    assert {"at", "level", "room", "message"} <= set(lines[0])
    text = json.dumps(lines)
    seed = (home / "key").read_text().split()[4]
    assert made.token is not None
    for secret in ("a payload that nobody", token(home), made.token, seed):
        assert secret not in text


def test_over_tls_it_can_be_reached_by_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    certificate, key = make_certificate(tmp_path)
    environment = {
        "PULSARCAST_HTTP_TLS_CERTIFICATE": str(certificate),
        "PULSARCAST_HTTP_TLS_KEY": str(key),
    }
    with running(home, **environment) as process:
        url = (home / "http").read_text().strip()
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        with urllib.request.urlopen(f"{url}/v1/health", context=context, timeout=10) as answer:
            assert json.load(answer)["status"] == "ok"
        end(process)


def test_a_certificate_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("nonsense")
    ran = subprocess.run(
        [sys.executable, "-m", "pulsarcast", "daemon", "--home", str(tmp_path / "home"), *LOCAL],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={
            **os.environ,
            "PULSARCAST_HTTP_TLS_CERTIFICATE": str(tmp_path / "pem"),
            "PULSARCAST_HTTP_TLS_KEY": str(tmp_path / "pem"),
        },
    )
    assert ran.returncode == 1
    assert "are not a certificate and its key" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--http", "0.0.0.0:0"), "can be reached by others"),
        (("--bootstrap", "nonsense"), "not an address of a peer"),
        (("--listen", "nonsense"), "nonsense"),
        (("--log-level", "loud"), "log levels are"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, words: tuple[str, ...], complaint: str) -> None:
    ran = subprocess.run(
        [
            sys.executable, "-m", "pulsarcast", "daemon", "--home", str(tmp_path), *LOCAL, *words
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert complaint in ran.stderr
    assert "Traceback" not in ran.stderr


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for loopback that nobody signed but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def test_a_trace_that_somebody_removes_meanwhile_does_not_end_the_daemon(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"{number}.zst"
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    # What is listed and then not there.
    (tmp_path / "gone.zst").symlink_to(tmp_path / "nowhere")
    _delete_oldest(tmp_path, 200)
    assert sorted(path.name for path in tmp_path.glob("?.zst")) == ["1.zst", "2.zst"]
