"""The default test command runs a part of every folder that is slow as a whole."""

from __future__ import annotations

import pytest

from tests.conftest import SLOW_FOLDERS, pytest_collection_modifyitems
from tests.test_house import ROOT


@pytest.mark.parametrize("folder", sorted(SLOW_FOLDERS))
def test_a_slow_folder_has_a_representative(folder: str) -> None:
    files = list((ROOT / "tests" / folder).glob("test_*.py"))
    assert any("pytest.mark.representative" in file.read_text() for file in files)


def test_representatives_are_not_slow_and_all_others_of_their_folder_are(
    request: pytest.FixtureRequest,
) -> None:
    place = ROOT / "tests" / "training" / "test_none.py"
    module = pytest.Module.from_parent(request.session, path=place)
    items = [
        pytest.Function.from_parent(module, name=f"test_{n}", callobj=lambda: None) for n in "ab"
    ]
    items[0].add_marker(pytest.mark.representative)
    pytest_collection_modifyitems([*items])
    assert [item.get_closest_marker("slow") is not None for item in items] == [False, True]


def test_of_a_quick_table_every_so_many_rows_are_not_slow(request: pytest.FixtureRequest) -> None:
    place = ROOT / "tests" / "test_none.py"
    module = pytest.Module.from_parent(request.session, path=place)
    items = [
        pytest.Function.from_parent(
            module, name=f"test_a[{n}]", callobj=lambda: None, originalname="test_a"
        )
        for n in range(6)
    ]
    for item in items:
        item.add_marker(pytest.mark.quick(every=3))
    items[1].add_marker(pytest.mark.slow)
    pytest_collection_modifyitems([*items])
    slow = [item.get_closest_marker("slow") is not None for item in items]
    assert slow == [False, True, True, True, True, False]
