"""Families of operators hold what ONNX's own schemas and numpy say of their members."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from samba_onnx.facts import families
from samba_onnx.facts.families import (
    FLOAT_PRODUCTS,
    MOVING,
    NEUTRAL,
    PRODUCTS,
    QUANTISING,
    READING_BITS,
    REARRANGING,
    SUMMING,
    TYPE_ATTRIBUTES,
)
from samba_onnx.facts.operators import FACTS

SCHEMAS = [schema for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain]
TYPE = re.compile(r"TensorProto|[Dd]ata ?[Tt]ype|precision used|floating.point precision|type of")


def test_every_member_is_an_operator_with_facts() -> None:
    for name in families.__all__:
        members = {*getattr(families, name)}
        if name != "TYPE_ATTRIBUTES":
            assert members - FACTS.keys() <= {"Bitcast"}, name


def test_attributes_that_name_a_type_are_those_of_the_schemas() -> None:
    said = {
        name
        for schema in SCHEMAS
        for name, attribute in schema.attributes.items()
        if attribute.type is onnx.defs.OpSchema.AttrType.INT and TYPE.search(attribute.description)
    }
    assert said <= TYPE_ATTRIBUTES
    # Those that this version of ONNX has under no other meaning.
    others = {
        (schema.name, name)
        for schema in SCHEMAS
        for name, attribute in schema.attributes.items()
        if name in TYPE_ATTRIBUTES and attribute.type is not onnx.defs.OpSchema.AttrType.INT
    }
    # Cast named its type in words before version 6.
    assert others <= {("Cast", "to")}


@pytest.mark.parametrize("name", NEUTRAL)
def test_operands_change_places_and_one_number_changes_nothing(name: str) -> None:
    operation = {"Add": np.add, "And": np.logical_and, "Mul": np.multiply, "Or": np.logical_or}[
        name
    ]
    values = np.array([True, False]) if name in ("And", "Or") else np.array([-2.5, 3.0])
    neutral = values.dtype.type(NEUTRAL[name])
    assert (operation(values, neutral) == values).all()
    assert (operation(neutral, values) == values).all()


@pytest.mark.parametrize("name", sorted(REARRANGING))
def test_a_result_has_each_element_once(name: str) -> None:
    sizes = {"Reshape": [3, 2], "Squeeze": [0], "Unsqueeze": [0]}.get(name)
    inputs = ["x"] if sizes is None else ["x", "sizes"]
    node = onnx.helper.make_node(name, inputs, ["y"])
    feeds = {"x": np.arange(6.0, dtype=np.float32).reshape(1, 2, 3)}
    if sizes is not None:
        feeds["sizes"] = np.array(sizes)
    (result,) = ReferenceEvaluator(node).run(None, feeds)
    assert sorted(result.flatten().tolist()) == list(range(6))


def test_the_sets_stand_in_each_other() -> None:
    assert FLOAT_PRODUCTS < PRODUCTS
    assert REARRANGING < MOVING
    assert not SUMMING & PRODUCTS
    assert not READING_BITS & TYPE_ATTRIBUTES


def test_zero_points_stand_where_the_schemas_have_them() -> None:
    for name, place in QUANTISING.items():
        schema = onnx.defs.get_schema(name, 21)
        assert schema.inputs[place].name == "y_zero_point"
