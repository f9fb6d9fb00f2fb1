"""One step of torch's own optimizers on arrays, and how far ours may be from it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from samba_onnx.comparing.eager import optimizers
from samba_onnx.comparing.eager.optimizers import (
    _allowed,
    _errors,
    _initial,
    _scale,
    _with_hyperparameters,
    compare_updates,
)
from samba_onnx.comparing.eager.torch_steps import Memory, Slot, torchs_step
from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.programs.optimizers import optimizer_parts
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.facts.tolerances import TIMES_TORCHS_ERROR, UPDATE_ROUNDINGS
from samba_onnx.optim import SGD, AdamW, optimizer_record
from samba_onnx.optim.records import Flag, GroupRecord, OptimizerKind, OptimizerRecord

OPTIONS = {"lr": 0.3, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.1}


def record(*flags: Flag, **options: Any) -> OptimizerRecord:
    group = GroupRecord("g", ("w",), OPTIONS, flags=frozenset(flags))
    return OptimizerRecord(OptimizerKind.SGD, "sgd", (group,), **options)


def memory(dtype: Any = np.float32) -> Memory:
    generator = np.random.default_rng(0)
    names = ("w", "w__grad", "w__momentum_buffer")
    return {name: generator.standard_normal(50).astype(dtype) for name in names}


def stepped(contents: Memory, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """Return the weight and the momentum after a step of torch.optim.SGD."""
    tensors = {n: torch.from_numpy(a.astype(np.float64)).to(dtype) for n, a in contents.items()}
    weight = torch.nn.Parameter(tensors["w"])
    weight.grad = tensors["w__grad"]
    optimizer = torch.optim.SGD([weight], **OPTIONS, **options)
    optimizer.state[weight] = {"momentum_buffer": tensors["w__momentum_buffer"]}
    optimizer.step()
    state = optimizer.state[weight]["momentum_buffer"]
    return weight.detach().double().numpy(), state.double().numpy()


@pytest.mark.parametrize(
    ("dtype", "exact", "computed"),
    [
        (np.float32, True, torch.float64),
        (np.float32, False, torch.float32),
        (np.float64, False, torch.float64),
        (ml_dtypes.bfloat16, False, torch.float32),
    ],
)
def test_steps_are_computed_in_the_type_that_is_asked_for(
    dtype: Any, exact: bool, computed: torch.dtype
) -> None:
    contents = memory(dtype)
    found = torchs_step(record(), contents, 2, exact=exact)
    weight, state = stepped(contents, computed)
    np.testing.assert_array_equal(found[Slot("w")], weight)
    np.testing.assert_array_equal(found[Slot("w", "momentum_buffer")], state)


@pytest.mark.parametrize("flag", [Flag.NESTEROV, Flag.MAXIMIZE])
def test_choices_of_an_optimizer_are_torchs(flag: Flag) -> None:
    contents = memory()
    found = torchs_step(record(flag), contents, 2, exact=True)
    weight, _ = stepped(contents, torch.float64, **{flag.value: True})
    np.testing.assert_array_equal(found[Slot("w")], weight)
    assert not np.array_equal(weight, stepped(contents, torch.float64)[0])


def test_a_weight_with_a_copy_is_updated_from_the_copy() -> None:
    narrow = memory(ml_dtypes.bfloat16)
    contents = {**narrow, "w__master": memory()["w"]}
    found = torchs_step(record(fp32_params=True), contents, 2, exact=True)
    weight, _ = stepped({**narrow, "w": contents["w__master"]}, torch.float64)
    np.testing.assert_array_equal(found[Slot("w", "master")], weight)
    np.testing.assert_array_equal(found[Slot("w")], weight)


def test_the_scale_is_that_of_the_largest_number_that_enters() -> None:
    before = {
        "w": np.float32([1, -2]),
        "w__grad": np.float32([30, -100]),
        "w__exp_avg": np.float32([3, 0]),
        "w__exp_avg_sq": np.float32([4, 0]),
        "w__master": np.float32([5, 0]),
    }
    new = np.array([0.5, -1.5])
    keys = {"": 2.0, "master": 5.0, "exp_avg": 100.0, "exp_avg_sq": 1e-3 * 100**2}
    for key, scale in keys.items():
        assert _scale(Slot("w", key), before, new) == scale
        assert _scale(Slot("w", key), before, new * 1000) == 1500.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_what_is_allowed_is_torchs_error_some_roundings_and_what_storing_costs(dtype: Any) -> None:
    limits = ml_dtypes.finfo(dtype)
    expected = np.array([0.0, -3.0])
    computed = min(2.0**-23, float(limits.eps))
    stored = float(limits.eps) * (np.abs(expected) + float(limits.smallest_normal))
    right = TIMES_TORCHS_ERROR * 0.25 + UPDATE_ROUNDINGS * computed * 4.0 + stored
    np.testing.assert_array_equal(_allowed(np.dtype(dtype), expected, 4.0, 0.25), right)
    (nothing,) = _allowed(np.dtype(dtype), np.zeros(1), 0.0, 0.0)
    assert nothing == float(limits.eps) * float(limits.smallest_normal) > 0


def test_errors_are_fractions_against_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    contents, one = memory(), record()
    exact = torchs_step(one, contents, 2, exact=True)
    torchs = torchs_step(one, contents, 2, exact=False)
    after = {f"{slot.symbol}__updated": array for slot, array in exact.items()}
    errors: list[float] = []

    def allowed(dtype: Any, expected: Any, scale: float, torchs_error: float) -> Any:
        errors.append(torchs_error)
        return np.zeros(())

    monkeypatch.setattr(optimizers, "_allowed", allowed)
    assert set(_errors(one, contents, after, 2).values()) == {0.0}
    assert errors == [float(np.abs(torchs[slot] - exact[slot]).max()) for slot in exact]
    assert min(errors) > 0
    monkeypatch.setattr(optimizers, "_allowed", lambda *_: np.full((), np.inf))
    wrong = {**after, "w__updated": after["w__updated"] + 0.5}
    found = _errors(one, contents, wrong, 2)["w__updated"]
    largest = max(np.abs(contents["w"]).max(), np.abs(exact[Slot("w")]).max())
    assert found == pytest.approx(0.5 / largest)
    monkeypatch.undo()
    with pytest.raises(ExportMismatchError, match="step 2 of SGD"):
        _errors(one, contents, wrong, 2)


def test_norms_are_fractions_of_the_norm_of_the_gradients() -> None:
    contents = {"w": np.zeros(2), "w__grad": np.array([3.0, 4.0])}
    clipped = record(max_grad_norm=9.0)
    changed = _with_hyperparameters(clipped, contents, {"lr": 0.5, "momentum": 0.25}, 2.0)
    assert changed.max_grad_norm == 2.0 * 5.0
    assert changed.groups[0].hyperparameters == {**OPTIONS, "lr": 0.5}
    assert _with_hyperparameters(record(), contents, {}, 2.0).max_grad_norm is None


def parts_of(dtype: torch.dtype, frozen: int) -> tuple[list[OptimizerRecord], Any]:
    names = {f"w{number}": torch.nn.Parameter(torch.ones(3, dtype=dtype)) for number in range(3)}
    records = [optimizer_record(AdamW(names.values(), fp32_params=True), 0, names)]
    specs = {name: (onnx_type(dtype), (3,)) for name in names if name != f"w{frozen}"}
    return records, optimizer_parts(records, specs).update


def test_all_weights_are_drawn_but_those_that_no_loss_reaches() -> None:
    records, parts = parts_of(torch.bfloat16, frozen=0)
    contents = _initial(records[0].parameters, parts, np.random.default_rng(0))
    assert "w0" not in contents
    for name in ("w1", "w2"):
        assert contents[name].dtype == ml_dtypes.bfloat16
        assert contents[f"{name}__master"].dtype == np.float32
        assert contents[name].any()
        np.testing.assert_array_equal(
            contents[name], contents[f"{name}__master"].astype(ml_dtypes.bfloat16)
        )
        assert not contents[f"{name}__exp_avg"].any()


def test_every_comparison_is_the_same_up_to_the_most_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight = {"w": torch.nn.Parameter(torch.ones(3))}
    records = [optimizer_record(SGD(weight.values(), lr=0.1), 0, weight)]
    parts = optimizer_parts(records, {"w": (onnx_type(torch.float32), (3,))}).update
    monkeypatch.setattr(optimizers, "MOST_NUMBERS", 3)
    first, second = (compare_updates(records, parts) for _ in range(2))
    assert dict(first.errors) == dict(second.errors)
    assert first.errors
    monkeypatch.setattr(optimizers, "MOST_NUMBERS", 2)
    assert not compare_updates(records, parts).errors
