"""A result is wrong if it is further from what is exact than torch's own roundings explain."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from samba_onnx.comparing.expectations import Expectation, Expected
from samba_onnx.comparing.judge import Verdict, judge
from samba_onnx.comparing.torch_rules import AMPLITUDES
from samba_onnx.facts.names import gradient_name

GENERATOR = np.random.default_rng(0)
EXACT = GENERATOR.standard_normal(1000)
NATIVE = (EXACT * (1 + 1e-3 * GENERATOR.standard_normal(1000))).astype(np.float32)
"""As if torch had lost all digits but three."""


@dataclasses.dataclass
class Torch:
    """Runs that were prepared."""

    native: Mapping[str, NDArray[Any]]
    exact: Mapping[str, NDArray[Any]] | None = None
    after: Mapping[int, Mapping[str, NDArray[Any]]] = dataclasses.field(default_factory=dict)
    """What comes out after roundings, by the number of the run; of others, what is exact."""
    unit: float = 2.0**-23
    runs: int = 0

    def moved(self, seed: int, amplitude: float) -> Mapping[str, NDArray[Any]] | None:
        assert amplitude == AMPLITUDES[seed]
        self.runs += 1
        return self.after.get(seed, self.exact)


def judged(ours: Mapping[str, Any], torch: Torch) -> list[Verdict]:
    """Return the verdicts on results that are wrong."""
    verdicts = judge(ours, Expectation.of_torch(torch))
    return [verdict for verdict in verdicts if not verdict.passed]


def judgement(ours: Any, native: Any, exact: Any = None, **after: Any) -> Verdict:
    """Judge one result; of runs with roundings, ``run_3`` is the fourth."""
    runs = {int(name.removeprefix("run_")): {"y": value} for name, value in after.items()}
    torch = Torch({"y": native}, None if exact is None else {"y": exact}, runs)
    (verdict,) = judge({"y": ours}, Expectation.of_torch(torch))
    return verdict


def test_what_is_near_torch_needs_no_float64() -> None:
    torch = Torch({"y": NATIVE})
    assert not judged({"y": NATIVE * np.float32(1 + 1e-6)}, torch)
    assert torch.runs == 0
    assert judged({"y": NATIVE * np.float32(1 + 1e-4)}, torch)


def test_an_error_of_torchs_size_is_none() -> None:
    ours = (EXACT * (1 + 2e-3 * GENERATOR.standard_normal(1000))).astype(np.float32)
    assert judgement(ours, NATIVE, EXACT).passed


def test_an_error_beyond_torchs_is_one() -> None:
    found = judgement(EXACT.astype(np.float32) * np.float32(1.02), NATIVE, EXACT)
    assert 1 < found.of_allowed < 10
    assert found.name == "y"
    assert 0.01 < found.max_relative_error < 0.03
    assert "torch's own roundings account for 0.00" in found.extent


def test_many_small_errors_count_as_one_that_is_large() -> None:
    """None of them is larger than torch's largest."""
    native = EXACT.astype(np.float32)
    native[0] += 0.1
    assert judgement(EXACT.astype(np.float32), native, EXACT).passed
    assert not judgement((EXACT + 0.05).astype(np.float32), native, EXACT).passed


def test_a_jump_is_allowed_where_torch_jumps() -> None:
    native = EXACT.astype(np.float32)
    ours, jumped = native.copy(), EXACT.copy()
    ours[7] += 0.1
    jumped[9] += 0.1
    assert not judgement(ours, native, EXACT).passed
    assert judgement(ours, native, EXACT, run_5=jumped).passed
    assert not judgement(ours * np.float32(1.01), native, EXACT, run_5=jumped).passed


def test_torch_runs_in_float64_once_for_all_results() -> None:
    class Counting(Torch):
        @property
        def exact(self) -> Any:  # type: ignore[override]
            self.runs += 1
            return {"x": EXACT, "y": EXACT, "z": EXACT}

        @exact.setter
        def exact(self, value: Any) -> None:
            """Ignore what the dataclass sets."""

    names = "xyz"
    torch = Counting(dict.fromkeys(names, NATIVE))
    assert not judged({name: EXACT.astype(NATIVE.dtype) for name in names}, torch)
    assert torch.runs == 1


def test_a_steady_torch_is_not_run_over_and_over() -> None:
    torch = Torch({"y": NATIVE}, {"y": EXACT})
    assert judged({"y": -NATIVE}, torch)
    assert torch.runs == 4 < len(AMPLITUDES)


def test_torchs_own_roundings_judge_where_there_is_no_float64() -> None:
    native = EXACT.astype(np.float32)
    moved = native * np.float32(1 + 1e-4)
    ours = native * np.float32(1 + 3e-4)
    assert judgement(ours, native, run_0=moved).passed
    assert not judgement(ours, native).passed
    # Five times as far as torch itself moves, with what float32 and the floor add.
    for times, wrong in ((4.8, False), (5.2, True)):
        ours = native * np.float32(1 + 1e-4 * times)
        assert judgement(ours, native, run_0=moved).passed != wrong


@pytest.mark.parametrize(
    ("ours", "native"),
    [
        ([1, math.nan, math.inf, 4], [1, 0, math.inf, 4]),
        ([1, math.nan, math.inf, 4], [1, math.nan, -math.inf, 4]),
        ([1, math.nan, math.nan, 4], [1, math.nan, math.inf, 4]),
        ([math.nan] * 4, [1, math.nan, math.inf, 4]),
    ],
)
def test_what_is_not_finite_is_so_in_torch(ours: list[float], native: list[float]) -> None:
    expected = np.array(native, np.float32)
    exact = expected.astype(np.float64)
    found = judgement(np.array(ours, np.float32), expected, exact)
    assert math.isinf(found.max_relative_error)
    assert "not finite" in found.extent
    assert judgement(expected, expected).passed


def test_what_float32_cannot_hold_is_infinite_here_too() -> None:
    """float64 does not overflow."""
    native, exact = np.array([math.inf, 1], np.float32), np.array([1e200, 1.0])
    ours = np.array([math.inf, 1 + 1e-5], np.float32)
    close = np.array([1e200, 1 + 1e-5])
    assert judgement(ours, native, exact, run_0=close).passed
    finite = np.array([3e38, 1], np.float32)
    assert not judgement(finite, native, exact, run_0=close).passed


def test_differences_that_float32_cannot_hold_are_seen() -> None:
    native = np.array([3e38, 1], np.float32)
    assert not judgement(-native, native).passed
    assert judgement(native, native).passed


def test_whole_numbers_are_equal_or_torchs_change_too() -> None:
    native = np.array([3, 1, 2])
    other = np.array([3, 2, 1])
    assert judgement(native, native).passed
    found = judgement(other, native, native)
    assert found.extent == "2 of its 3 numbers are not torch's"
    assert judgement(other, native, native, run_3=np.array([3, 2, 1])).passed
    assert judgement(other, native, native, run_3=np.array([2, 3, 1])).passed
    assert not judgement(other, native, native, run_3=np.array([1, 3, 2])).passed


def test_types_sizes_and_absence() -> None:
    for ours, words in (
        (NATIVE.astype(np.float64), r"float64 of sizes [1000] instead of float32"),
        (NATIVE[:10], "sizes [10] instead of"),
        (None, "the program does not compute it"),
    ):
        found = judgement(ours, NATIVE)
        assert words in found.extent
    assert found.extent == words


def test_complex_numbers() -> None:
    native = (EXACT + 1j * EXACT[::-1]).astype(np.complex64)
    assert judgement(native * np.complex64(1 + 1e-6j), native).passed
    assert not judgement(native.conj(), native, native.astype(np.complex128)).passed


def test_small_gradients_may_be_noise_beside_large_ones() -> None:
    large, small = gradient_name("large"), gradient_name("small")
    noise = (1e-9 * EXACT).astype(np.float32)
    torch = Torch({large: NATIVE, small: noise}, {large: EXACT, small: 0 * EXACT})
    assert not judged({large: NATIVE, small: -noise}, torch)
    assert judged({"large": NATIVE, "small": -noise}, Torch({"large": NATIVE, "small": noise}))


def test_results_of_which_torch_is_unsure_are_named() -> None:
    rough = (EXACT + 0.1 * GENERATOR.standard_normal(1000)).astype(np.float32)
    ours = (EXACT + 0.1 * GENERATOR.standard_normal(1000)).astype(np.float32)
    result = judgement(ours, rough, EXACT)
    assert result.passed
    assert result.coarse
    assert judgement(EXACT.astype(np.float32) * np.float32(1 + 1e-4), NATIVE, EXACT).coarse is False


def test_what_is_right_in_float64_is_right_however_wrong_torch_is() -> None:
    torch = Torch({"y": NATIVE}, {"y": EXACT}, {0: None})  # type: ignore[dict-item]  # nothing runs
    assert not judged({"y": EXACT.astype(np.float32)}, torch)
    assert torch.runs == 0


def test_an_error_of_every_number_counts_as_more_than_one_of_the_largest() -> None:
    """What is near at once may be off by 64 roundings somewhere, and by 32 everywhere."""
    native = np.ones(1000, np.float32)
    one = native.copy()
    one[7] += 48 * 2.0**-23
    assert judgement(one, native).passed
    assert not judgement(native + np.float32(48 * 2.0**-23), native).passed


@pytest.mark.parametrize(("off", "wrong"), [(9e-3, False), (12e-3, False), (16e-3, True)])
def test_what_follows_smoothly_is_no_jump(off: float, wrong: bool) -> None:
    """Four roundings move torch by eight times its error without a jump; three times the rest may be."""
    exact = np.ones(100)
    native = (exact + 1e-3).astype(np.float32)
    ours = (exact + off).astype(np.float32)
    smooth = {f"run_{run}": exact + 1e-3 * amplitude for run, amplitude in enumerate(AMPLITUDES)}
    jump = {**smooth, "run_3": exact + 11e-3}
    assert not judgement(ours, native, exact, **smooth).passed
    assert judgement(ours, native, exact, **jump).passed != wrong


def test_small_numbers_are_noise_only_beside_gradients() -> None:
    gradient, noise = gradient_name("large"), (1e-9 * EXACT).astype(np.float32)
    for small, wrong in ((gradient_name("small"), False), ("small", True)):
        torch = Torch({gradient: NATIVE, small: noise})
        assert bool(judged({gradient: NATIVE, small: -noise}, torch)) == wrong


def test_what_is_no_number_where_torch_overflows_is_wrong() -> None:
    native, exact = np.array([math.inf, 1], np.float32), np.array([1e200, 1.0])
    assert not judgement(np.array([math.nan, 1], np.float32), native, exact).passed


def test_what_is_a_number_where_torch_has_none_is_wrong_although_float64_has_it() -> None:
    native, exact = np.array([math.nan, 1], np.float32), np.array([1.0, 1.0])
    assert not judgement(np.array([1, 1], np.float32), native, exact).passed
    assert judgement(native, native, exact).passed


def test_whole_numbers_that_change_by_one_rounding_are_torchs_own() -> None:
    native, other = np.array([3, 1, 2]), np.array([3, 2, 1])
    found = judgement(other, native, native, run_0=other)
    assert found.passed
    assert found.max_relative_error == 0.0


def test_booleans_are_equal() -> None:
    native = np.array([True, False])
    assert judgement(native, native).passed
    found = judgement(~native, native, native)
    assert found.extent == "2 of its 2 numbers are not torch's"


def test_an_error_is_a_multiple_of_what_is_allowed_by_the_figure_for_which_that_is_more() -> None:
    """Of the largest error, and of the root of the mean of the squares of all."""

    def stated(allowed: float, typical: float) -> float:
        expected = Expected(np.zeros(4), np.array(allowed), 1.0, "", typical=typical)
        expectation = Expectation({"y": np.zeros(4)}, stated={"y": expected})
        (verdict,) = judge({"y": np.array([2.0, 0.0, 0.0, 0.0])}, expectation)
        assert verdict.passed == (verdict.of_allowed <= 1)
        return verdict.of_allowed

    assert stated(0.0, 1.0) == stated(2.0, 0.0) == math.inf
    assert stated(2.0, 1.0) == stated(2.0, math.inf) == 1.0
    assert stated(2.0, 0.25) == stated(0.5, 1.0) == 4.0


def test_results_without_numbers_agree() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert judgement(empty, empty).max_relative_error == 0.0
    assert not judgement(np.zeros((0, 2), np.float32), empty).passed
