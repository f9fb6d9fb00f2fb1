"""What optimizers add to a program, apart from the numbers: see test_updates.py for these."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.export.programs.optimizers import (
    OptimizerParts,
    clip_coefficient_name,
    optimizer_parts,
)
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.optim import SGD, Adam, AdamW, optimizer_record
from samba_onnx.program.kinds import SymbolKind
from tests.optim.running import prepare
from tests.optim.update_cases import CASES, parameters


def test_parameters_without_gradient_or_elements_have_no_part_in_it() -> None:
    trained, frozen, empty = (nn.Parameter(torch.ones(shape)) for shape in ((2,), (3,), (0, 4)))
    optimizer = AdamW([trained, frozen, empty])
    names = {"w": trained, "frozen": frozen, "empty": empty}
    record = optimizer_record(optimizer, names=names)
    specs = {"w": (onnx_type(trained.dtype), (2,)), "empty": (onnx_type(empty.dtype), (0, 4))}
    parts = optimizer_parts([record], specs)
    assert {name.split("__")[0] for name in parts.residents} == {"w"}
    only_empty = optimizer_parts([record], {"empty": specs["empty"]})
    assert only_empty.update == ()
    assert only_empty.argins == ()


def test_residents_are_weights_gradients_and_state() -> None:
    names = parameters(torch.bfloat16)
    runner = prepare([AdamW(names.values(), fp32_params=True, max_grad_norm=1.0)], names)
    kinds = {n: k for n, k in runner.parts.residents.items() if n.startswith("model__w0")}
    state = SymbolKind.OPTIMIZER_STATE
    assert kinds == {
        "model__w0": SymbolKind.WEIGHT,
        "model__w0__updated": SymbolKind.WEIGHT,
        "model__w0__grad": SymbolKind.GRADIENT,
        **{
            f"model__w0__{key}{suffix}": state
            for key in ("master", "exp_avg", "exp_avg_sq")
            for suffix in ("", "__updated")
        },
    }
    assert runner.parts.regions["model__w0__exp_avg__updated"] == "model__w0__exp_avg"
    plain = prepare([AdamW(names.values())], names).parts.residents
    assert plain["model__w0"] == plain["model__w0__updated"] == SymbolKind.WEIGHT


ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Sqrt", "Max", "Cast"})
"""What may read an old value; ``Where`` is none of it."""


def hazards(parts: OptimizerParts) -> list[str]:
    """Readers of old values that may run after, or are disturbed by, the writing of new ones."""
    found = []
    for part in parts.update:
        outputs = {value.name: value for value in part.model.graph.outputs}
        for old in part.model.graph.inputs:
            new = outputs.get(f"{old.name}__updated")
            if new is None:
                continue
            writer = new.producer()
            assert writer is not None
            earlier, pending = set(), [writer]
            while pending:
                node = pending.pop()
                earlier.add(node)
                pending += [p for v in node.inputs if v and (p := v.producer()) is not None]
            shapes = {tuple(v.shape.numpy()) for v in writer.inputs if v is not None and v.shape}
            reads = {use.node for use in old.uses()}
            if not reads <= earlier or not {n.op_type for n in reads} <= ELEMENTWISE:
                found.append(f"{old.name} is read later or not elementwise")
            if writer in reads and shapes - {(), tuple(new.shape.numpy())}:  # type: ignore[union-attr]
                found.append(f"{old.name} is broadcast into its own new value")
    return found


@pytest.mark.parametrize(("ours", "theirs", "options"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_new_values_may_be_written_over_old_ones(
    ours: Any, theirs: Any, options: dict[str, Any], dtype: torch.dtype
) -> None:
    names = parameters(dtype)
    for fp32_params in (False, True):
        optimizer = ours(names.values(), lr=0.1, fp32_params=fp32_params, **options)
        assert hazards(prepare([optimizer], names).parts) == []


@pytest.mark.parametrize(
    ("ours", "options", "most"),
    [
        (SGD, {}, 9),
        (SGD, {"momentum": 0.9}, 9),
        (AdamW, {}, 13),
        (Adam, {}, 14),
    ],
)
def test_a_step_takes_few_passes_over_memory(ours: Any, options: dict[str, Any], most: int) -> None:
    names = parameters()
    runner = prepare([ours(names.values(), lr=0.1, **options)], names)
    (part,) = runner.parts.update
    sizes = [tuple(node.outputs[0].shape or ()) for node in part.model.graph]
    assert len([size for size in sizes if size]) <= most * len(names)


def test_what_depends_on_argins_alone_is_computed_once_for_a_group() -> None:
    parameters = [nn.Parameter(torch.ones(size)) for size in (2, 3, 4, 5)]
    names = {f"w{place}": parameter for place, parameter in enumerate(parameters)}
    optimizer = SGD([{"params": parameters[:3]}, {"params": parameters[3:]}], lr=0.1, momentum=0.9)
    specs = {name: (onnx_type(one.dtype), tuple(one.shape)) for name, one in names.items()}
    (part,) = optimizer_parts([optimizer_record(optimizer, names=names)], specs).update
    scalar = [node for node in part.model.graph if all(not v.shape for v in node.outputs)]
    assert sorted(node.op_type for node in scalar) == sorted(2 * ["Equal", "Not", "Where"])


def test_what_optimizers_add_is_called_after_them() -> None:
    names = parameters()
    first, *rest = names.values()
    clipping = [SGD([first], max_grad_norm=1.0), AdamW(rest, max_grad_norm=2.0)]
    runner = prepare(clipping, names)
    assert [part.model.graph.name for part in runner.parts.update] == [
        *("optimizer0__gradnorm", "optimizer1__gradnorm"),
        *("optimizer0__opt", "optimizer1__opt"),
    ]
    coefficients = [clip_coefficient_name(record) for record in runner.records]
    assert coefficients == ["optimizer0__clip_coefficient", "optimizer1__clip_coefficient"]
    limits = [one for one in runner.parts.argins if one.name.endswith("__max_grad_norm")]
    assert [(one.name, one.type, one.default) for one in limits] == [
        ("optimizer0__max_grad_norm", "tensor(float)", 1.0),
        ("optimizer1__max_grad_norm", "tensor(float)", 2.0),
    ]


def test_defaults_of_argins_are_those_of_the_first_step() -> None:
    names = parameters()
    optimizer = SGD(names.values(), lr=0.1, momentum=0.5, dampening=0.25)
    defaults = {one.name: one.default for one in prepare([optimizer], names).parts.argins}
    assert defaults["optimizer0__group0__one_minus_dampening"] == 1.0
    assert defaults["optimizer0__group0__lr"] == 0.1


def test_scalars_are_double_where_a_parameter_is() -> None:
    names = parameters(torch.float64)
    runner = prepare([SGD(names.values(), lr=0.1, max_grad_norm=1.0)], names)
    assert {argin.type for argin in runner.parts.argins} == {"tensor(double)"}
    mixed = {"a": nn.Parameter(torch.ones(2)), "b": nn.Parameter(torch.ones(2).double())}
    groups: list[dict[str, Any]] = [{"params": [mixed["a"]]}, {"params": [mixed["b"]]}]
    types = {one.name: one.type for one in prepare([SGD(groups, lr=0.1)], mixed).parts.argins}
    assert types["optimizer0__group0__lr"] == "tensor(float)"
    assert types["optimizer0__group1__lr"] == "tensor(double)"


@pytest.mark.parametrize("key", ["momentum_buffer", "master"])
def test_a_state_with_the_name_of_a_parameter_is_refused(key: str) -> None:
    names = {"w": nn.Parameter(torch.ones(2)), f"w__{key}": nn.Parameter(torch.ones(2))}
    with pytest.raises(UsageError, match=f"state '{key}' of parameter 'w'"):
        prepare([SGD([names["w"]]), AdamW([names[f"w__{key}"]])], names)


def test_every_parameter_has_one_optimizer() -> None:
    names = parameters()
    with pytest.raises(UsageError, match="'model__w0' is given to the optimizers more than once"):
        prepare([SGD(names.values()), AdamW([names["model__w0"]])], names)


def test_an_optimizer_of_another_model_is_refused() -> None:
    other = nn.Parameter(torch.ones(2))
    record = optimizer_record(SGD([other]), names={"other": other})
    with pytest.raises(UsageError, match="none of the parameters that the loss reaches"):
        optimizer_parts([record], {"w": (onnx_type(torch.float32), (2,))})


def test_integers_are_not_updated() -> None:
    weight = nn.Parameter(torch.ones(2))
    record = optimizer_record(SGD([weight]), names={"w": weight})
    with pytest.raises(UsageError, match="'w' of INT32: only floating-point"):
        optimizer_parts([record], {"w": (onnx_type(torch.int32), (2,))})
