"""A daemon's whole history as a Parquet archive, and every signature in it verified on all cores.

    python -m benchmarks.spark_archive [--home DIR] [--events 1000000] [--cluster]

Publishes the events through a daemon (or takes a home that has them under the alias `large`),
archives them and verifies the archive, each with the command that people use. Then PyNaCl verifies
the publishers' signatures of the same blocks in a plain loop in one process: the messages are made
before the clock starts, and nothing else is looked at. At last three events are changed, a payload,
a bit of a block and a signature, and the archive is verified again. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import libipld
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from nacl.bindings import crypto_sign_open

from benchmarks.daemon_readers import cpu_of
from benchmarks.measuring import session_cpu_s
from benchmarks.spark_source import ALIAS, daemon, fill, token_of
from pulsarcast.client import Client
from pulsarcast.model.cbor import encode_part
from pulsarcast.model.events import read_own_event
from pulsarcast.model.identity import signed_bytes
from pulsarcast.model.ids import public_key_of
from pulsarcast.pipeline.archive import ArchiveFolder
from pulsarcast.pipeline.archive.writing import OPTIONS

COMMAND: Final = "import sys; from pulsarcast.cli import main; main(sys.argv[1:])"
FOUND: Final = 1


def main() -> None:
    """Archive, verify, compare, tamper."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--home", type=Path, help="Filled if it is new; kept.")
    parser.add_argument("--out", type=Path, help="Where the archive is left; it must not be there.")
    parser.add_argument("--cluster", action="store_true", help="On a standalone cluster.")
    given = parser.parse_args()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-archive-")))
        out = given.out or work / "archive"
        master = None
        if given.cluster:
            from tests.pipeline.cluster import running_cluster

            (work / "cluster").mkdir()
            cluster = stack.enter_context(running_cluster(work / "cluster"))
            os.environ.update(cluster.environment)
            master = cluster.master
        run = Command(out, master)
        found: dict[str, Any] = {"cores": len(os.sched_getaffinity(0))}
        with daemon(given.home or work / "home") as (url, pid):
            with Client(url, token_of(given.home or work / "home")) as client:
                found["events"] = fill(client, given.events)
            before_s = cpu_of(pid)
            archived = run(ALIAS, "--home", str(given.home or work / "home"))
            archived["daemon_cpu_s"] = round(cpu_of(pid) - before_s, 1)
        told = archived.pop("archived")
        assert told["events"] == found["events"], told
        archived["rows_per_s"] = round(told["events"] / told["seconds"])
        found["archive"] = archived | {key: told[key] for key in ("seconds", "batches", "bytes")}
        found["verify"] = verified(run("--verify"))
        assert found["verify"]["problems"] == 0, found
        found["pynacl_loop_per_s"] = plain_loop(out)
        found["times_the_loop"] = round(
            found["verify"]["events_per_s"] / found["pynacl_loop_per_s"], 2
        )
        planted = plant(out)
        again = run("--verify", code=FOUND)["verified"]
        named = sorted(each["offset"] for each in again["findings"])
        found["tampered"] = {
            "planted": planted,
            "found": {each["offset"]: each["reason"] for each in again["findings"]},
            "exactly": again["problems"] == len(planted) and named == sorted(planted.values()),
        }
        print(json.dumps(found))


class Command:
    """`pulsarcast pipeline archive` in a process of its own, measured."""

    def __init__(self, out: Path, master: str | None) -> None:
        self._options = ["--out", str(out), "--json", *(["--master", master] if master else [])]

    def __call__(self, *words: str, code: int = 0) -> dict[str, Any]:
        """What it says, and what it took with all its processes."""
        began_s = time.monotonic()
        arguments = ["pipeline", "archive", *words, *self._options]
        used_s: dict[int, float] = {}
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments],
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            while process.poll() is None:
                used_s.update(session_cpu_s(process.pid))
                time.sleep(0.1)
            if process.returncode != code:
                errors.seek(0)
                raise RuntimeError(errors.read().decode()[-4000:])
            output.seek(0)
            told: dict[str, Any] = json.loads(output.read())
        return told | {
            "job_cpu_s": round(sum(used_s.values()), 1),
            "whole_job_s": round(time.monotonic() - began_s, 1),
        }


def verified(told: dict[str, Any]) -> dict[str, Any]:
    """The figures of a verification."""
    figures = told.pop("verified")
    names = ("events_per_s", "seconds", "cpu_s", "problems", "remarks", "files")
    return told | {name: figures[name] for name in names}


# The same in a loop


def plain_loop(out: Path) -> int:
    """Publishers' signatures a second, of all blocks: PyNaCl alone, in this process."""
    count, spent_s = 0, 0.0
    for batch in blocks(out):
        ready = []
        for block in batch:
            fields: Any = libipld.decode_dag_cbor(block)
            signature = fields.pop("s")[1:]
            key = public_key_of(fields.get("p", fields["r"]["a"]))
            ready.append((signature + signed_bytes("event", encode_part(fields)), key))
        began_s = time.monotonic()
        for message, key in ready:
            crypto_sign_open(message, key)
        spent_s += time.monotonic() - began_s
        count += len(ready)
    return round(count / spent_s)


def blocks(out: Path) -> Iterator[list[bytes]]:
    """All blocks of an archive, some thousand at a time."""
    for part in ArchiveFolder(out).parts():
        with pq.ParquetFile(part.path) as file:
            for batch in file.iter_batches(10_000, columns=["block"]):
                yield batch.column("block").to_pylist()


# Tampering


def plant(out: Path) -> dict[str, int]:
    """Change three events, far from each other; their offsets, by what was done."""
    parts = ArchiveFolder(out).parts()
    last = parts[-1].last
    wanted: dict[str, tuple[int, Callable[[dict[str, Any]], None]]] = {
        "payload": (last // 7, change_payload),
        "block": (last // 2, flip_payload_bit),
        "signature": (last - 3, flip_signature_bit),
    }
    for offset, change in wanted.values():
        (part,) = (each for each in parts if each.first <= offset <= each.last)
        rewrite(part.path, offset, change)
    return {name: offset for name, (offset, _) in wanted.items()}


def rewrite(path: Path, offset: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Write a file anew with one row changed."""
    new = path.with_name(".new")
    with pq.ParquetFile(path) as file, pq.ParquetWriter(new, file.schema_arrow, **OPTIONS) as out:
        for at in range(file.num_row_groups):
            rows = file.read_row_group(at)
            place = pc.index(rows["offset"], offset).as_py()
            if place >= 0:
                row = rows.slice(place, 1).to_pylist()[0]
                change(row)
                changed = pa.Table.from_pylist([row], rows.schema)
                rows = pa.concat_tables([rows.slice(0, place), changed, rows.slice(place + 1)])
            out.write_table(rows)
    new.rename(path)


def change_payload(row: dict[str, Any]) -> None:
    """Something else was said."""
    row["payload"] = b"x" + row["payload"][1:]


def flip_payload_bit(row: dict[str, Any]) -> None:
    """Within what is signed."""
    row["block"] = flipped(row["block"], row["block"].index(row["payload"]))


def flip_signature_bit(row: dict[str, Any]) -> None:
    """The signature itself."""
    signature = read_own_event(row["block"]).signature
    row["block"] = flipped(row["block"], row["block"].index(signature))


def flipped(block: bytes, place: int) -> bytes:
    """The same but for one bit."""
    return block[:place] + bytes([block[place] ^ 1]) + block[place + 1 :]


if __name__ == "__main__":
    main()
