"""What tests cost decides which of them the default command and CI run; the file of costs is kept."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.costs import (
    DEAR,
    REPRESENTATIVE,
    Cost,
    Meter,
    read_costs,
    rows_beyond,
    slow_rows,
    write_costs,
)
from tests.test_house import ROOT

pytest_plugins = ["pytester"]


@functools.cache
def functions(file: str) -> set[str]:
    """Return the tests of a file, as pytest names them."""
    found = set[str]()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)
            }
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return found


def test_the_file_of_costs_names_tests_that_exist() -> None:
    gone = [
        name
        for name in read_costs()
        if not (ROOT / name.split("::", 1)[0]).exists()
        or name.split("::", 1)[1] not in functions(name.split("::", 1)[0])
    ]
    assert not gone, "take these lines out of tests/costs.tsv"


def test_of_the_dear_tests_of_a_file_one_row_of_the_cheapest_is_quick() -> None:
    costs = {
        "a.py::test_x": Cost(0.2, 1.5),
        "a.py::test_y": Cost(0.5, 0.5),
        "b.py::test_z": Cost(0.1, 2 * REPRESENTATIVE),
    }
    nodes = [
        "a.py::test_x",
        "a.py::test_y[0]",
        "a.py::test_y[1]",
        "a.py::test_free",
        "b.py::test_z",
    ]
    assert slow_rows(nodes, costs) == {"a.py::test_x", "a.py::test_y[1]", "b.py::test_z"}


def test_of_a_table_that_costs_more_than_ci_spends_every_so_many_rows_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.costs.TABLE", 15.0)
    nodes = [f"a.py::test_x[{n}]" for n in range(6)] + [f"a.py::test_y[{n}]" for n in range(6)]
    beyond = rows_beyond(nodes, {"a.py::test_x": Cost(7.0, 7.0), "a.py::test_y": Cost(2.5, 9.0)})
    assert beyond == {f"a.py::test_x[{n}]" for n in (1, 2, 4, 5)}


def test_marks_follow_from_costs(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.Module.from_parent(request.session, path=ROOT / "tests" / "test_none.py")
    names = ["test_a[0]", "test_a[1]", "test_a[2]", "test_b"]
    items = [pytest.Function.from_parent(module, name=n, callobj=lambda: None) for n in names]
    items[3].add_marker(pytest.mark.slow)
    monkeypatch.setattr(
        "tests.conftest.read_costs", lambda: {"tests/test_none.py::test_a": Cost(1.9, 1.9)}
    )
    monkeypatch.setattr("tests.costs.TABLE", 1.9)
    pytest_collection_modifyitems(items)
    marks = [[bool(i.get_closest_marker(m)) for m in ("slow", "exhaustive")] for i in items]
    assert marks == [[False, False], [True, False], [True, True], [True, False]]


def test_what_costs_little_has_no_row(tmp_path: Path) -> None:
    costs = {"b": Cost(1.234, 2), "a": Cost(DEAR, DEAR), "c": Cost(DEAR / 2, 1)}
    write_costs(costs, tmp_path / "costs.tsv")
    assert read_costs(tmp_path / "costs.tsv") == {"a": (DEAR, DEAR), "b": (1.2, 2)}


def test_the_seconds_of_rows_are_measured(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = dict[str, Cost]()
    monkeypatch.setattr("tests.costs.read_costs", lambda: {"old.py::test_o": Cost(9.0, 9.0)})
    monkeypatch.setattr("tests.costs.write_costs", written.update)
    pytester.makepyfile(
        test_work="""
        import pytest, subprocess, sys, time
        work = "import time\\nwhile time.process_time() < 0.4: pass\\nprint(flush=True)\\ninput()"
        @pytest.mark.parametrize("seconds", [0.0, 0.2])
        def test_w(seconds):
            began = time.process_time()
            while time.process_time() - began < seconds: pass
        @pytest.fixture(scope="module")
        def worker():
            with subprocess.Popen([sys.executable, "-c", work], stdin=-1, stdout=-1) as process:
                yield process
                process.stdin.write(b"done")
        def test_worker(worker):
            worker.stdout.readline()
        def test_z(worker):
            pass
        @pytest.mark.skip
        def test_skipped(): pass
        def test_left_out():
            pytest.skip()
        """
    )
    pytester.inline_run("-p", "no:cacheprovider", plugins=[Meter()])
    assert set(written) == {
        "old.py::test_o",
        *(f"test_work.py::test_{x}" for x in ("w", "worker", "z")),
    }
    mean, most = written["test_work.py::test_w"]
    assert most >= 0.2  # it ran until a clock said so
    assert mean >= most / 2
    # A process that waits for more work has used what it used, and does not use it again when it ends.
    assert written["test_work.py::test_worker"].most >= 0.3
    assert written["test_work.py::test_z"].most < 0.3
