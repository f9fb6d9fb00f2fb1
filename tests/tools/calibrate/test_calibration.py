"""What is measured of this machine; no test asserts how fast it is."""

from __future__ import annotations

import math

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.passes.timing.hosts import figures
from samba_onnx.tools.calibrate import calibration
from samba_onnx.tools.calibrate.calibration import calibrate


def test_every_figure_is_measured_within_counted_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_SIZE", 64)
    monkeypatch.setattr(calibration, "_ELEMENTS", 1 << 12)
    counted: list[tuple[float, float]] = []

    done = calibrate(0.01, threads=1, count=lambda *progress: counted.append(progress))

    values = [value for value, _ in figures(done.host).values()]
    assert all(value > 0 and math.isfinite(value) for value in values)
    # Every type is measured or said to be refused.
    names = {"float32", "float64", "float16", "bfloat16", "int8"}
    assert done.host.peak_flops.keys() | set(done.refused) == names
    assert not done.host.peak_flops.keys() & set(done.refused)
    assert "float32" in done.host.peak_flops
    assert done.host.assumptions == ()
    assert done.note.startswith("onnxruntime ")
    assert done.note.endswith(", 1 thread")
    # Three runs of each of nine computations at least, and never more than all of it.
    assert len(counted) >= 3 * (len(done.host.peak_flops) + 4)
    assert [spent for spent, _ in counted] == sorted(spent for spent, _ in counted)
    assert all(spent <= total == 0.01 for spent, total in counted)


def test_threads_are_checked() -> None:
    with pytest.raises(UsageError, match="threads"):
        calibrate(0.01, threads=0)
