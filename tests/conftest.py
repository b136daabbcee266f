"""What every test shares: the way to real data, how a property is tried, who runs which file."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

MISSING_DATA = "missing data"
MISSING_NAMESPACES = "missing network namespaces"
MISSING_PARTNERS = "missing partners"

LONGEST = (
    # Slow: jobs with JVMs of their own.
    "pipeline/test_ingest_killed.py",
    "pipeline/test_cluster.py",
    "pipeline/test_topics_sink_killed.py",
    "pipeline/test_topics_cluster.py",
    "pipeline/test_topics_secret.py",
    "pipeline",
    "docs/test_guides.py",
    "docs/test_notebook.py",
    "machines/test_relays.py",
    "attacks/test_hostile_inputs.py",
    "unit/testbed/scenarios/test_succession.py",
    "unit/daemon/test_openapi.py",
    "simulation/test_seeds_that_failed.py",
)
"""What takes longest: files, and folders that one worker takes as a whole. Workers begin with them:
one that begins last keeps the others waiting for minutes. `.ci/run` prints the slowest tests; what
is not named here comes later.

`pipeline` is a whole because its tests share a session of Spark, which takes seconds to start and
half a minute to get warm, and some share what they had it judge."""

# A loaded machine is slow, not wrong. `.ci/run` takes hypothesis' own profile "ci" instead.
settings.register_profile("pulsarcast", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=10)
settings.load_profile("pulsarcast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-data",
        action="store_true",
        help="a test that would skip for missing data, namespaces or partners fails instead",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker("data")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    unit = _unit_of(nodeid)
    return LONGEST.index(unit) if unit in LONGEST else len(LONGEST)


def _unit_of(nodeid: str) -> str:
    """What one worker takes as a whole: a file, or a folder that `LONGEST` names."""
    file = nodeid.partition("::")[0].removeprefix("tests/")
    folder = file.partition("/")[0]
    return folder if folder in LONGEST and file not in LONGEST else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, workers take units in the order in which they were collected.

    By itself xdist begins with the files that have most tests, whatever those take.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = _unit_of
    return scheduler


@pytest.fixture(scope="session")
def shared_data(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """The path of a file of ../shared/data, as in `shared_data("churn/session-fits.json")`."""

    def find(name: str) -> Path:
        path = pytestconfig.rootpath.parent / "shared" / "data" / name
        if not path.is_file():
            pytest.skip(f"{MISSING_DATA}: {name}")
        return path

    return find


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_missing_data(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_missing_data(report, collector.config)
    return report


def _refuse_missing_data(
    report: pytest.TestReport | pytest.CollectReport, config: pytest.Config
) -> None:
    """With --require-data, turn a skip for what is missing into a failure, whoever skipped."""
    if not (report.skipped and config.getoption("--require-data")):
        return
    # A skip's longrepr is (path, line, reason); an expected failure's is not.
    if isinstance(report.longrepr, tuple) and any(
        missing in report.longrepr[2]
        for missing in (MISSING_DATA, MISSING_NAMESPACES, MISSING_PARTNERS)
    ):
        report.outcome = "failed"
        report.longrepr = report.longrepr[2]
