"""Runs command lines in this process, with stand-ins for the rooms below."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samba_onnx.cli.application import run_command
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Manifest
from tests.runtime.building import (
    FALLBACK,
    FROM,
    INPUT,
    OUTPUT,
    TO,
    WEIGHT,
    Plan,
    build,
    fallback,
    section,
)


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


SambaPort = Callable[..., Result]


@pytest.fixture
def samba_port(capsys: pytest.CaptureFixture[str]) -> SambaPort:
    def run(*arguments: object) -> Result:
        status = run_command([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return run


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[dict[str, Any]]]:
    """Put a compiler in place that returns a manifest or raises; it keeps what it was asked."""

    def install(answer: Manifest | Exception) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def analyze(model: str, **options: Any) -> Manifest:
            calls.append({"model": model, **options})
            if isinstance(answer, Exception):
                raise answer
            return answer

        def convert(model: str, output: str, **options: Any) -> Any:
            manifest = analyze(model, output=output, **options)
            Path(output).write_bytes(b"x" * 2048)
            return _Opened(manifest)

        module = types.ModuleType("samba_onnx.compiling.compiler")
        module.analyze = analyze  # type: ignore[attr-defined]
        module.convert = convert  # type: ignore[attr-defined]
        monkeypatch.setitem(__import__("sys").modules, "samba_onnx.compiling.compiler", module)
        return calls

    return install


class _Opened:
    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        return None


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that a stand-in compiler never opens."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    return path


def mixed_plan() -> Plan:
    """x @ w on the RDU, a doubling on the CPU, a sum with b on the RDU."""
    weights = {"w": np.arange(512, dtype=np.float32).reshape(16, 32) / 512}
    first = """first (float[4, 16] x, float[16, 32] w) => (float[4, 32] h) { h = MatMul(x, w) }"""
    middle = """middle (float[4, 32] h) => (float[4, 32] d) { d = Add(h, h) }"""
    last = """last (float[4, 32] d, float[32] b) => (float[4, 32] y) { y = Add(d, b) }"""
    return Plan(
        pieces=[section(first, seconds=2e-6), fallback(middle), section(last, seconds=1e-6)],
        inputs=["x", "b"],
        outputs=["y"],
        weights=weights,
        load=[("w", WEIGHT)],
        moves=[
            ("x", TO, INPUT, 0),
            ("b", TO, INPUT, 2),
            ("h", FROM, FALLBACK, 1),
            ("d", TO, FALLBACK, 2),
            ("y", FROM, OUTPUT, 2),
        ],
    )


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A PEF with two sections around a fallback; y = 2 (x @ w) + b."""
    pef: Pef = build(tmp_path, mixed_plan())
    pef.close()
    return Path(pef.path)


def mixed_result(x: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    result: np.ndarray[Any, Any] = 2 * (x @ mixed_plan().weights["w"]) + b
    return result
