"""One Spark session for all tests of the pipeline in a process: starting one takes seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from pulsarcast.pipeline.session import LITTLE, session

HERE = Path(__file__).parent
TIMEOUT_S = 900
"""On a busy machine Spark is slow, not wrong."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores and few partitions: the data is small."""
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        **LITTLE,
        "spark.default.parallelism": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "1g",
    }
    with session("tests", master="local[2]", settings=settings) as spark:
        yield spark
