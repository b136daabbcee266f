"""The rules of tests/conftest.py, tried on a project of their own."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import conftest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

USES_DATA = """
    def test_reads(shared_data):
        assert shared_data("a.txt").read_text() == "a"
"""


@pytest.fixture
def project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.Pytester]:
    """An empty project with our conftest, in a folder whose parent may hold shared/data.

    It runs in this process, without plugins: loading them takes longer than all that is tried.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    root = pytester.mkdir("project")
    (root / "pytest.ini").write_text("[pytest]\nmarkers = data: needs data\n")
    pytester.chdir()
    (root / "conftest.py").write_text(CONFTEST.read_text())
    profile = settings.get_current_profile_name()
    yield pytester
    settings.load_profile(profile)  # that conftest chose one for this process


def _run(project: pytest.Pytester, test: str, *options: str) -> pytest.RunResult:
    path = project.path / "project" / "test_it.py"
    path.write_text("import pytest\n" + "\n".join(line[4:] for line in test.splitlines()))
    return project.runpytest_inprocess("--rootdir=project", "-rs", *options, path)


def test_a_file_that_is_there_is_found(project: pytest.Pytester) -> None:
    data = project.path / "shared" / "data"
    data.mkdir(parents=True)
    (data / "a.txt").write_text("a")
    _run(project, USES_DATA, "--require-data").assert_outcomes(passed=1)


def test_a_file_that_is_missing_skips_the_test_and_is_named(project: pytest.Pytester) -> None:
    result = _run(project, USES_DATA)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*missing data: a.txt"])


def test_namespaces_that_are_missing_fail_the_test_where_data_is_required(
    project: pytest.Pytester,
) -> None:
    needs = """
    def test_two_machines():
        pytest.skip("missing network namespaces: they need root")
    """
    _run(project, needs).assert_outcomes(skipped=1)
    _run(project, needs, "--require-data").assert_outcomes(failed=1)


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


def test_files_that_share_a_session_run_in_one_worker(project: pytest.Pytester) -> None:
    """And the longest first: by their names and by how many tests they have, they would be last."""
    root = project.path / "project"
    shared = {"pipeline/test_one.py", "pipeline/test_two.py"}
    counts = {
        **dict.fromkeys(shared, 1),
        **{f"brief/test_{number}.py": 9 for number in range(4)},
    }
    for file, count in counts.items():
        path = root / "tests" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"def test_{each}(): pass\n" for each in range(count)))
    arguments = ("--rootdir=project", "-v", "-p", "xdist", "-n", "2", "--dist", "loadfile")
    result = project.runpytest_inprocess(*arguments, "--import-mode=importlib", root / "tests")
    result.assert_outcomes(passed=sum(counts.values()))
    ran = re.findall(r"\[(gw\d)\] .* PASSED project/tests/(\S+)::", result.stdout.str())
    workers = {worker for worker, file in ran if file in shared}
    assert len(workers) == 1
    (worker,) = workers
    assert next(file for each, file in ran if each == worker) in shared


@pytest.mark.parametrize("name", conftest.LONGEST)
def test_what_is_named_for_the_order_is_there(name: str) -> None:
    assert (CONFTEST.parent / name).exists()
