from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.planning.roles import Roles, unique
from samba_onnx.program.kinds import SymbolKind
from tests.passes.planning.plan_samples import parse

GRAPH = parse("g (float[2] w, float[2] m, float[2] x) => (float[2] y) { y = Sum (w, m, x) }").graph
W, M, X = GRAPH.inputs
Y = GRAPH.outputs[0]


def roles(changed: frozenset[str] = frozenset(), **regions: str) -> Roles:
    residents = {W: SymbolKind.WEIGHT, M: SymbolKind.GRADIENT, Y: SymbolKind.WEIGHT}
    return Roles((X,), (), residents=residents, regions=regions, changed=changed)


def test_a_graph_without_residents_exchanges_all_its_inputs_and_outputs() -> None:
    assert (Roles.of(GRAPH).inputs, Roles.of(GRAPH).outputs) == ((W, M, X), (Y,))


def test_a_region_has_the_name_of_its_value_unless_another_is_set() -> None:
    assert roles(y="w").region(Y) == "w"
    assert roles().region(Y) == "y"
    assert roles().region(ir.Value()) == ""


@pytest.mark.parametrize(
    ("value", "changed", "known"),
    [
        (W, frozenset(), True),
        (W, frozenset({"w"}), False),
        (M, frozenset(), False),
        (M, frozenset({"m"}), False),
        (X, frozenset(), False),
    ],
    ids=["weight", "trained weight", "gradient", "changed gradient", "input"],
)
def test_the_host_knows_loaded_residents_that_no_run_changes(
    value: ir.Value, changed: frozenset[str], known: bool
) -> None:
    assert roles(changed).known_to_host(value) is known


def test_the_update_of_a_resident_is_not_loaded_itself() -> None:
    assert roles(y="w").loaded() == (W,)


def test_of_two_inputs_with_one_region_the_first_is_loaded() -> None:
    residents = {M: SymbolKind.WEIGHT, W: SymbolKind.WEIGHT}
    assert Roles((X,), (Y,), residents=residents, regions={"w": "m"}).loaded() == (M,)


def test_unique_keeps_the_order() -> None:
    assert unique([X, W, X, M, W]) == (X, W, M)
