"""A model where a PEF is read, and the other way round: the message names the command that is for it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import SambaPort


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("inspect", "m.onnx"),
            "m.onnx is an ONNX model, and inspect reads a PEF: samba-port analyze m.onnx",
        ),
        (("run", "m.onnx", "--random", "0"), "samba-port convert m.onnx makes a PEF of it"),
        (("inspect", "a.b:net"), "a.b:net is a factory, and inspect reads a PEF"),
        (("run", "net.pt2"), "net.pt2 is a PyTorch model, and run reads a PEF"),
        (("inspect", "report.json"), "report.json is a JSON document, and inspect reads a PEF"),
        (("verify", "m.onnx"), "m.onnx is an ONNX model, and verify reads a PEF"),
        (("verify", "m.pef", "m.onnx"), "m.pef is a PEF: the model comes first"),
        (
            ("verify", "a.b:net", "m.pef", "--seed", "3"),
            "a PyTorch model is compared on its example",
        ),
        (
            ("analyze", "m.pef"),
            "m.pef is a PEF, and analyze reads a model: samba-port inspect m.pef",
        ),
        (("convert", "m.pef", "-o", "other.pef"), "samba-port run m.pef runs it"),
        (("analyze", "m.onnx", "--train"), "--train takes package.module:factory"),
        (("analyze", "a.b:net", "--loss-index", "0"), "--loss-index is for --train"),
    ],
)
def test_files_of_another_kind(
    samba_port: SambaPort, arguments: tuple[str, ...], message: str
) -> None:
    result = samba_port(*arguments)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
