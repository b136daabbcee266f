"""The rules of tests/conftest.py, tried on a project of their own."""

import re
from itertools import chain
from pathlib import Path

import pytest

from tests import conftest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

USES_DATA = """
    def test_reads(shared_data):
        assert shared_data("a.txt").read_text() == "a"
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """An empty project with our conftest, in a folder whose parent may hold shared/data."""
    root = pytester.mkdir("project")
    (root / "pytest.ini").write_text("[pytest]\nmarkers = data: needs data\n")
    pytester.chdir()
    (root / "conftest.py").write_text(CONFTEST.read_text())
    return pytester


def _run(project: pytest.Pytester, test: str, *options: str) -> pytest.RunResult:
    path = project.path / "project" / "test_it.py"
    path.write_text("import pytest\n" + "\n".join(line[4:] for line in test.splitlines()))
    return project.runpytest_subprocess("--rootdir=project", "-rs", *options, path)


def test_a_file_that_is_there_is_found(project: pytest.Pytester) -> None:
    data = project.path / "shared" / "data"
    data.mkdir(parents=True)
    (data / "a.txt").write_text("a")
    _run(project, USES_DATA, "--require-data").assert_outcomes(passed=1)


def test_a_file_that_is_missing_skips_the_test_and_is_named(project: pytest.Pytester) -> None:
    result = _run(project, USES_DATA)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*missing data: a.txt"])


def test_a_file_that_is_missing_fails_the_test_where_data_is_required(
    project: pytest.Pytester,
) -> None:
    result = _run(project, USES_DATA, "--require-data")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*missing data: a.txt*"])


def test_a_whole_module_without_its_data_fails_where_data_is_required(
    project: pytest.Pytester,
) -> None:
    test = '    pytest.skip("missing data: b.txt", allow_module_level=True)'
    _run(project, test, "--require-data").assert_outcomes(errors=1)


def test_other_skips_stay_skips_where_data_is_required(project: pytest.Pytester) -> None:
    test = """
    def test_needs_root():
        pytest.skip("needs root")
    """
    _run(project, test, "--require-data").assert_outcomes(skipped=1)


def test_a_test_that_uses_data_is_marked(project: pytest.Pytester) -> None:
    result = _run(project, USES_DATA, "-m", "not data")
    result.assert_outcomes(deselected=1)


def test_files_that_share_their_preparation_run_in_one_worker(project: pytest.Pytester) -> None:
    """And the longest first: without that, they would be among the last, having one test each."""
    root = project.path / "project"
    for file in (*conftest.TOGETHER[0], *(f"test_{number}.py" for number in range(6))):
        path = root / "tests" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def test_one(): pass\ndef test_two(): pass\n")
    (root / "tests/test_0.py").write_text("def test_many(): pass\n" * 9)
    arguments = ("--rootdir=project", "-v", "-n", "2", "--dist", "loadfile")
    result = project.runpytest_subprocess(*arguments, "--import-mode=importlib", root / "tests")
    result.assert_outcomes(passed=2 * (len(conftest.TOGETHER[0]) + 5) + 1)
    ran = re.findall(r"\[(gw\d)\] .* PASSED project/tests/(\S+)::", result.stdout.str())
    workers = {worker for worker, file in ran if file in conftest.TOGETHER[0]}
    assert len(workers) == 1
    (worker,) = workers
    assert next(file for each, file in ran if each == worker) in conftest.TOGETHER[0]


@pytest.mark.parametrize("file", [*conftest.LONGEST, *chain(*conftest.TOGETHER)])
def test_every_file_that_is_named_for_the_order_is_there(file: str) -> None:
    assert (CONFTEST.parent / file).is_file()
