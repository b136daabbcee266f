"""What every test shares: the way to real data, and how a property is tried."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import settings

MISSING_DATA = "missing data"

# A loaded machine is slow, not wrong. `.ci/run` takes hypothesis' own profile "ci" instead.
settings.register_profile("pulsarcast", deadline=None)
settings.load_profile("pulsarcast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-data",
        action="store_true",
        help="a test that would skip for missing data fails instead",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker("data")


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
    """With --require-data, turn a skip for missing data into a failure, whoever skipped."""
    if not (report.skipped and config.getoption("--require-data")):
        return
    # A skip's longrepr is (path, line, reason); an expected failure's is not.
    if isinstance(report.longrepr, tuple) and MISSING_DATA in report.longrepr[2]:
        report.outcome = "failed"
        report.longrepr = report.longrepr[2]
