"""Marks are records that tensors share, and properties that show their fields."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.tensor.device import FAST_ACCESS
from samba_onnx.tensor.marks import (
    NO_MARKS,
    FastAccess,
    Mark,
    Marks,
    anonymous_name,
    dim_names,
    memory_type,
)


class Thing:
    """Something with marks that is no tensor."""

    _marks: Marks = NO_MARKS
    label: Mark[str] = Mark("name", "What it is called.")
    place: Mark[str] = Mark("region_name", "Where it lies.", read="place")
    gradient: Mark[str] = Mark("gradient_place", "Where its gradient lies.", read_only=True)
    memory: Mark[str | None] = Mark("mem_type", "Which memory.", check=memory_type)
    pinned = FastAccess("Whether it is pinned.")


def test_marks_say_where_values_and_gradient_lie() -> None:
    assert (NO_MARKS.place, NO_MARKS.gradient_place) == ("", "")
    assert (Marks("w").place, Marks("w").gradient_place) == ("w", "w__grad")
    shared = Marks("w", "cache")
    assert (shared.place, shared.gradient_place) == ("cache", "w__grad")
    with pytest.raises(dataclasses.FrozenInstanceError):
        shared.name = "v"  # type: ignore[misc]


def test_setting_a_mark_changes_no_other_tensor_that_shares_it() -> None:
    one, other = Thing(), Thing()
    one.label = "w"
    other._marks = one._marks
    other.place = "cache"
    assert (one.label, one.place, one.gradient) == ("w", "w", "w__grad")
    assert (other.label, other.place) == ("w", "cache")
    assert Marks() == NO_MARKS


def test_a_value_is_checked_and_a_read_only_mark_stays() -> None:
    thing = Thing()
    thing.memory = "hbm"
    assert thing.memory == "HBM"
    with pytest.raises(UsageError, match="mem_type is 'tape'; give one of DDR, HBM, Host"):
        thing.memory = "tape"
    with pytest.raises(AttributeError, match="gradient_place of a tensor cannot be set"):
        thing.gradient = "elsewhere"
    assert thing.memory == "HBM"


def test_a_property_has_its_own_docstring() -> None:
    assert inspect.getdoc(Thing.label) == "What it is called."
    assert inspect.getdoc(Thing.pinned) == "Whether it is pinned."


def test_fast_access_is_known_by_name() -> None:
    thing = Thing()
    with pytest.raises(UsageError, match="give the tensor an sn_name first"):
        thing.pinned = True
    thing.label = "pinned thing"
    thing.pinned = True
    assert thing.pinned
    assert "pinned thing" in FAST_ACCESS
    thing.pinned = False
    assert not thing.pinned


def test_names_of_dimensions_and_made_up_names() -> None:
    assert dim_names(iter(["batch", None])) == ("batch", None)
    assert dim_names(None) == ()
    assert anonymous_name() != anonymous_name()
