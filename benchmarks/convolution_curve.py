"""The published curve of convolutions: which shapes its points can be of, and how near modelled times are to them.

``python -m benchmarks convolutions`` measures nothing. Points are operations and TFLOPS; shapes are those of ResNet-18, ResNet-50 and
MobileNetV2 at 224 by 224 without groups, with batches of 1 to 1024. Of operations that several shapes have, each point is taken
for the shape that is nearest to it, no shape twice unless there are fewer of them: that flatters, so that points of one shape alone are
counted apart. The two constants of convolutions are fitted to every second number of operations, and the others are judged.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from scipy.optimize import least_squares, linear_sum_assignment  # type: ignore[import-untyped]

from benchmarks.table import geometric_mean
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.section_terms import SectionTerms, section_terms
from samba_onnx.pef.target_summary import TargetSummary

POINTS: Final = Path(__file__).with_name("published_convolutions.json")
LOW, HIGH = 0.75, 1.33
_BATCHES: Final = tuple(2**power for power in range(11))
_READ: Final = 1.2e-3
"""By how much operations are off that are read off a plot, as a share."""
_ROUNDS: Final = 4


@dataclass(frozen=True)
class Shape:
    """A convolution of square images."""

    channels: int
    kernels: int
    window: int
    stride: int
    size: int
    batch: int = 1

    @property
    def operations(self) -> int:
        """Operations of all images, a multiply-add counted as two."""
        places = (self.size // self.stride) ** 2
        return 2 * self.batch * places * self.kernels * self.channels * self.window**2

    def terms(self, target: TargetSummary) -> SectionTerms:
        """Return what the convolution has to do as a section by itself."""
        after = self.size // self.stride
        shapes = (
            [self.batch, self.channels, self.size, self.size],
            [self.kernels, self.channels, self.window, self.window],
            [self.batch, self.kernels, after, after],
        )
        bfloat16 = ir.TensorType(ir.DataType.BFLOAT16)
        values = [
            ir.Value(name=str(n), shape=ir.Shape(s), type=bfloat16) for n, s in enumerate(shapes)
        ]
        node = ir.Node("", "Conv", values[:2], outputs=values[2:])
        ir.Graph(values[:2], values[2:], nodes=[node], opset_imports={"": 21})
        return section_terms([node], {"ddr": [2 * math.prod(shape) for shape in shapes]}, target)


@dataclass(frozen=True)
class Point:
    """Published points of one number of operations, with the shapes that have as many."""

    seconds: tuple[float, ...]
    terms: tuple[SectionTerms, ...]

    def nearest(self, target: TargetSummary) -> list[tuple[float, SectionTerms]]:
        """Return each published time with what the shape has to do whose modelled time is nearest."""
        modelled = [one.time(target).seconds for one in self.terms]
        off = np.abs(np.log(np.divide.outer(np.array(self.seconds), np.array(modelled))))
        if len(self.seconds) > len(modelled):
            places = list(enumerate(off.argmin(axis=1).tolist()))
        else:
            places = list(zip(*(each.tolist() for each in linear_sum_assignment(off)), strict=True))
        return [(self.seconds[point], self.terms[shape]) for point, shape in places]

    def ratios(self, target: TargetSummary) -> list[float]:
        """Return modelled over published time, each point for the shape that is nearest."""
        return [terms.time(target).seconds / time for time, terms in self.nearest(target)]


def shapes() -> list[Shape]:
    """Return the convolutions of the three nets, each once, for one image."""
    found = [Shape(3, 64, 7, 2, 224), Shape(3, 32, 3, 2, 224)]
    for block, width in enumerate((64, 128, 256, 512)):
        stride, size = (1 if block == 0 else 2), (56 if block == 0 else 112 >> block)
        after = size // stride
        for wide in (False, True):  # ResNet-18, and the bottlenecks of ResNet-50
            before = 64 if block == 0 else width * 2 if wide else width // 2
            out = 4 * width if wide else width
            if wide:
                found += [Shape(before, width, 1, 1, size), Shape(width, out, 1, 1, after)]
                found += [Shape(out, width, 1, 1, after), Shape(width, width, 3, stride, size)]
            else:
                found.append(Shape(before, width, 3, stride, size))
            found.append(Shape(width, width, 3, 1, after))
            if wide or block:
                found.append(Shape(before, out, 1, stride, size))
    return [*dict.fromkeys([*found, *_mobile()])]


def _mobile() -> Iterator[Shape]:
    """Yield the convolutions of MobileNetV2 that have no groups."""
    size, before = 112, 32
    settings = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip
    for factor, width, count, first in settings:
        for place in range(count):
            inner = before * factor
            if factor > 1:
                yield Shape(before, inner, 1, 1, size)
            size //= first if place == 0 else 1
            yield Shape(inner, width, 1, 1, size)
            before = width
    yield Shape(320, 1280, 1, 1, 7)


def points(target: TargetSummary) -> list[Point]:
    """Return the published points that a shape can be found for, by their number of operations."""
    published: list[list[float]] = json.loads(POINTS.read_text(encoding="utf-8"))["points"]
    candidates = [replace(one, batch=batch) for one in shapes() for batch in _BATCHES]
    found = []
    for operations, own in itertools.groupby(sorted(published), key=lambda point: point[0]):
        like = [one for one in candidates if abs(one.operations / operations - 1) < _READ]
        # Two that differ in the direction alone, as 160 to 960 channels and back, take as long as each other.
        kinds = {
            (*sorted((one.channels, one.kernels)), one.stride, one.size, one.window): one
            for one in like
        }
        if like:
            seconds = tuple(operations / rate / 1e12 for _, rate in own)
            found.append(Point(seconds, tuple(one.terms(target) for one in kinds.values())))
    return found


def fitted(target: TargetSummary, seen: Sequence[Point]) -> TargetSummary:
    """Return a target with the two constants of convolutions that points lead to."""
    timing = target.timing
    if timing is None:
        return target

    def with_logs(logs: Any) -> TargetSummary:
        maps, places = np.exp(logs).tolist()
        return replace(target, timing=replace(timing, map_seconds=maps, position_seconds=places))

    # Not from the values of the file, which have seen all points.
    logs = np.log([3 * timing.map_seconds, 3 * timing.position_seconds])
    for _ in range(_ROUNDS):
        # Which shape a point is of stays while constants are looked for.
        pairs = [pair for one in seen for pair in one.nearest(with_logs(logs))]

        def residuals(
            tried: Any, pairs: Sequence[tuple[float, SectionTerms]] = pairs
        ) -> list[float]:
            own = with_logs(tried)
            return [math.log(terms.time(own).seconds / time) for time, terms in pairs]

        logs = least_squares(residuals, logs, loss="soft_l1", f_scale=0.2).x
    return with_logs(logs)


def summary(target: TargetSummary, chosen: Sequence[Point]) -> str:
    """Return how near modelled times are to points, in words."""
    ratios = [ratio for one in chosen for ratio in one.ratios(target)]
    within = sum(LOW <= ratio <= HIGH for ratio in ratios)
    error = geometric_mean(max(ratio, 1 / ratio) for ratio in ratios) - 1
    return (
        f"{within} of {len(ratios)} ({within / len(ratios):.0%}) within {LOW:g} to {HIGH:g}, "
        f"geometric mean of the error {error:.0%}"
    )


def lines() -> list[str]:
    """Return all figures of the curve, a line each."""
    target = load_target("sn10").summary
    every = points(target)
    alone = [one for one in every if len(one.terms) == len(one.seconds) == 1]
    text = [f"- points of one shape alone: {summary(target, alone)}"]
    text.append(f"- points that a shape can be found for: {summary(target, every)}")
    chosen: Mapping[str, list[Point]] = {"one shape alone": alone, "a shape": every}
    for name, own in chosen.items():
        for half in (0, 1):
            by_half = fitted(target, own[half::2])
            timing = by_half.timing
            constants = (
                ""
                if timing is None
                else f"{timing.map_seconds * 1e9:.1f} ns a map, {timing.position_seconds * 1e9:.1f} a place"
            )
            text.append(
                f"- points of {name}, fitted to a half ({constants}): it {summary(by_half, own[half::2])}; "
                f"the other {summary(by_half, own[1 - half :: 2])}"
            )
    return text


def main() -> None:
    """Print the figures of the curve."""
    print("\n".join(lines()))
