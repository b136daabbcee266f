"""Spark sessions: the one place that builds them, for one machine or a cluster.

The settings here are part of what a result means: time is UTC, a partition's name stays the text
that it is, and numbers that overflow are errors. Executors of a cluster get this package shipped
with the job; besides it they need pyarrow, pandas, msgspec and zstandard, and for reading and
writing topics httpx, libipld, base58, pynacl, lark and google-re2.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import pulsarcast
import pyspark_pulsarcast

LOCAL = "local[*]"
HEAP = "2g"
"""Default memory of a session: every job must fit into it (docs/guides/scale.md)."""

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # `run_id=007` would read back as the number 7.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Our files are what they were written as: no other engine's dates to repair.
    "spark.sql.parquet.compression.codec": "zstd",
    # Kinds of lines that are rare have small files: several of them make one task.
    "spark.sql.files.openCostInBytes": "524288",
    # To note which line of ours made a column takes some ten calls into the JVM for each.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Every query is described for a page that nobody sees: briefly, then.
    "spark.sql.ui.explainMode": "simple",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


LITTLE: Mapping[str, str] = {
    # With the first compiler alone Java has room for 48 MB of code, which a few jobs fill: from
    # then on it throws code away and compiles it again.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    ),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "4",
}
"""For little data on one machine: to compile a query well takes longer than to run it once."""
LITTLE_BYTES = 16 << 20
"""Of traces or tables, compressed as they are: some hundred thousand lines."""


@contextmanager
def session(
    name: str,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    inputs: Iterable[str | Path] = (),
) -> Iterator[SparkSession]:
    """A session for one command, stopped at its end.

    `master` is a local one unless said otherwise, by argument or by `SPARK_MASTER`. `inputs` are
    the files or folders that it will read, where that is known: a little is read with less ado.
    """
    master = master or os.environ.get("SPARK_MASTER") or LOCAL
    fitting = LITTLE if master.startswith("local") and is_little(inputs) else {}
    spark = _build(name, master, {**fitting, **(settings or {})})
    with tempfile.TemporaryDirectory(prefix="pulsarcast-") as folder:
        try:
            if not master.startswith("local"):
                ship_package(spark, Path(folder))
            yield spark
        finally:
            spark.stop()


def is_little(inputs: Iterable[str | Path]) -> bool:
    """Whether all that is to be read is known, on this machine, and little."""
    given = [Path(each) for each in inputs]
    if not given or not all(path.exists() for path in given):
        return False
    total = 0
    for path in given:
        for file in path.rglob("*") if path.is_dir() else (path,):
            total += file.stat().st_size if file.is_file() else 0
            if total > LITTLE_BYTES:
                return False
    return True


def _build(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    # Executors take their interpreter from this variable; the setting alone leaves them on another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"pulsarcast {name}").master(master)
    chosen = {"spark.driver.memory": HEAP, **SETTINGS, **settings}
    if master.startswith("local"):
        # Nobody but us has to reach a local driver.
        chosen.setdefault("spark.driver.host", "127.0.0.1")
        chosen.setdefault("spark.driver.bindAddress", "127.0.0.1")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def ship_package(spark: SparkSession, folder: Path) -> None:
    """Give the executors this very package, whatever their interpreter has installed.

    They fetch it from the folder whenever one of them starts, so it has to stay.
    """
    spark.sparkContext.addPyFile(str(pack_package(folder / "pulsarcast.zip")))


def pack_package(target: Path) -> Path:
    """Write this package's source as one archive that Python can import from.

    With it goes the module by which Spark finds `format("pulsarcast")`.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (pulsarcast, pyspark_pulsarcast):
            root = Path(str(package.__file__)).parent
            for path in sorted(root.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, Path(root.name) / path.relative_to(root))
    return target
