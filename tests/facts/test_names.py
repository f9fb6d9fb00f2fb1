from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.facts.names import (
    FreeNames,
    before_name,
    free_name,
    gradient_name,
    in_a_list,
    joined,
    root_name,
    symbol_name,
    updated_name,
    zeroed_name,
)


class Net:
    """What stands for a module."""


def test_names_of_a_modules_members() -> None:
    assert root_name(Net()) == "net"
    assert root_name(Net(), "outer") == "outer__net"
    assert symbol_name("net", "layers.0.weight") == "net__layers__0__weight"
    assert symbol_name("net", "") == "net"


def test_derived_names() -> None:
    gradient = gradient_name(joined("net", "", "weight"))
    assert gradient == "net__weight__grad"
    assert updated_name(gradient) == "net__weight__grad__updated"
    assert zeroed_name(gradient) == "net__weight__grad__zeroed"
    assert before_name("net__mean") == "net__mean__before"


def test_a_free_name_is_returned_as_it_is() -> None:
    names = FreeNames(["y"])
    assert names.take("x") == "x"
    assert "x" in names


def test_a_taken_name_gets_the_lowest_free_number() -> None:
    names = FreeNames(["x", "x_1"])
    assert [names.take("x") for _ in range(3)] == ["x_2", "x_3", "x_4"]


def test_the_first_number_can_be_chosen() -> None:
    names = FreeNames(["x"], first=2)
    assert names.take("x") == "x_2"


def test_available_reserves_nothing() -> None:
    names = FreeNames(["x"])
    assert names.available("x") == names.available("x") == "x_1"
    assert "x_1" not in names


def test_names_that_are_reserved_later_are_avoided() -> None:
    names = FreeNames()
    assert names.take("x") == "x"
    names.reserve(["x_1", "x_2"])
    assert names.take("x") == "x_3"


@pytest.mark.parametrize("first", [1, 2])
def test_all_names_differ(first: int) -> None:
    names = FreeNames(first=first)
    taken = [names.take(wanted) for wanted in ["a", "a_1", "a", "a_2", "a", "a_1"] * 5]
    assert len(set(taken)) == len(taken)


def test_a_free_name_for_once() -> None:
    taken = {"x": 0, "x_1": 0}
    assert free_name("y", taken) == "y"
    assert free_name("x", taken) == "x_2"


def test_one_name_and_several() -> None:
    assert (
        in_a_list("all") == in_a_list(["all"]) == in_a_list(name for name in ("all",)) == ("all",)
    )
    assert in_a_list(Path("a.so")) == (Path("a.so"),)
    assert in_a_list(()) == ()
