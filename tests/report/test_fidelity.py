"""What reports claim of modelled times: for programs of every family, what published rows are about and no more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pytest

from samba_onnx.passes.targets import load_target
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.sharding import Parallelism
from samba_onnx.pef.target_summary import SUPPOSED, Assumption
from samba_onnx.program.kinds import SectionType
from samba_onnx.report.fidelity import PublishedProgram, coverage, published_program, validation
from tests.report.samples import all_on_rdu, detector

GPT2, TOKEN = "sn30/gpt2/o3/1600x6", "sn40l/llama/token/llama-3-8b"


@dataclass(frozen=True)
class Program:
    """What of a program decides what is claimed of it."""

    target: str
    operators: tuple[str, ...]
    flops: int
    bytes: int
    level: str = "o3"
    training: bool = False
    rdus: int = 1
    types: tuple[str, ...] = ("bfloat16",)

    def manifest(self) -> Manifest:
        """Return a manifest with one section that does it."""
        whole = all_on_rdu()
        (section,) = whole.sections
        own = replace(
            section,
            operators=dict.fromkeys(self.operators, 1),
            flops=self.flops,
            bytes=self.bytes,
            type=SectionType.BCKWD if self.training else SectionType.FWD,
        )
        return replace(
            whole,
            target=load_target(self.target).summary,
            level=self.level,
            sections=(own,),
            symbols=tuple(
                replace(s, type=f"tensor({self.types[n % len(self.types)]})")
                for n, s in enumerate(whole.symbols)
            ),
            parallel=Parallelism("weight", self.rdus) if self.rdus > 1 else None,
        )


def like(name: str, **changes: object) -> Program:
    """Return a program as a published one is, but for changes."""
    row = published_program(name)
    whole = Program(
        target=row.target,
        operators=tuple(sorted(row.operators)),
        flops=row.flops,
        bytes=row.bytes,
        level=row.level,
        training=row.training,
        rdus=row.rdus,
        types=tuple(sorted(row.types)),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


ROW: Final = published_program(GPT2)
NEITHER: Final = {
    "an MLP with a softmax": Program("sn40l", ("Gemm", "Relu", "Softmax"), 10**6, 10**6),
    "the same, with kernel looping and 8 RDUs": Program(
        "sn40l:kernel-looping", ("MatMul", "Add", "Softmax"), 10**10, 10**10, rdus=8
    ),
    "a CNN with a softmax": Program("sn40l", ("Conv", "Relu", "Softmax"), 10**10, 10**8),
    "a lone Gather on another device": Program("sn40l", ("Gather",), 0, 10**6),
    "a lone Gather on the device of single operators": Program("sn10", ("Gather",), 0, 10**6),
    "a lone Softmax": Program("sn10", ("Softmax",), 10**6, 10**6),
    "a product and an activation": Program("sn10", ("MatMul", "Relu"), 2 * 1024**3, 6 * 1024**2),
    "a product in float32": like("sn10/gemm/1024", types=("float",)),
    "a product of another device": like("sn10/gemm/1024", target="sn30"),
    "a product on a part of the device": like("sn10/gemm/1024", target="sn10:2tiles"),
    "a product operator by operator": like("sn10/gemm/1024", level="o0"),
    "a product 100 times as large": like("sn10/gemm/16384", flops=10**15, bytes=3 * 10**10),
    "a U-Net that trains": Program("sn10", ("Conv", "ConvTranspose", "Relu"), 10**12, 10**9, training=True),
    "a ResNet": Program("sn10", ("Conv", "Relu", "Add", "MaxPool", "GlobalAveragePool", "Gemm"), 10**10, 10**8),
    "a recurrent net": Program("sn30:4tiles", ("LSTM", "MatMul"), 10**9, 10**8),
    "another training step of as many operations": Program(
        ROW.target, ("MatMul", "Add", "Relu", "Softmax"), ROW.flops, ROW.bytes, training=True
    ),
    "GPT-2 on a whole chip": like(GPT2, target="sn30"),
    "GPT-2 at another level": like(GPT2, level="o1"),
    "GPT-2 in inference": like(GPT2, training=False),
    "GPT-2 with a fifth of the operators": like(GPT2, operators=tuple(sorted(ROW.operators))[::5]),
    "GPT-2 of a million parameters": like(GPT2, flops=10**9, bytes=10**8),
    "decoding on 32 RDUs": like(TOKEN, rdus=32),
    "decoding of 1000 sequences": like(TOKEN, flops=1000 * published_program(TOKEN).flops),
}  # fmt: skip
COVERED: Final = {
    "GPT-2 of a depth between": like(GPT2, flops=2 * ROW.flops, bytes=2 * ROW.bytes),
    "GPT-2 without its error function": like(GPT2, operators=tuple(ROW.operators - {"Erf"})),
    "decoding as published": like(TOKEN),
    "decoding on 16 RDUs": like("sn40l/llama/token/llama-3-8b/16sockets"),
    "decoding of 16 sequences": like("sn40l/llama/token/llama-3-8b/batch16"),
    "a product of a size between": like("sn10/gemm/1024"),
    "a ReLU": like("sn10/relu/1000000"),
    "a sigmoid": like("sn10/sigmoid/1000000"),
    "a convolution": like("sn10/conv2d/320to1280/16"),
}


@pytest.mark.parametrize("name", NEITHER)
def test_a_program_that_no_row_is_about_is_not_validated(name: str) -> None:
    text = validation(NEITHER[name].manifest())
    assert text.startswith("not validated on this device")
    assert "times the measured ones" not in text


@pytest.mark.parametrize("name", COVERED)
def test_a_program_as_published_ones_has_the_band_of_those(name: str) -> None:
    manifest = COVERED[name].manifest()
    known = coverage(manifest, manifest.graphs)
    assert 0 < known.share < 1  # copies between host and RDU are in no row
    assert all(row.target == manifest.target.name for row in known.rows)
    text = validation(manifest)
    assert f"as in {len(known.rows)} published row" in text
    assert f"{max(row.ratio for row in known.rows):.2f} times the measured ones" in text
    assert text.endswith("the rest is not validated on this device")


def test_only_sections_of_published_operators_are_covered() -> None:
    manifest = COVERED["a product of a size between"].manifest()
    (section,) = manifest.sections
    (graph,) = manifest.graphs
    whole = coverage(manifest, [graph]).share
    view = replace(section, operators={"MatMul": 1, "Reshape": 1})
    assert coverage(replace(manifest, sections=(view,)), [graph]).share == whole


def test_a_device_with_other_figures_is_none_that_was_measured() -> None:
    manifest = COVERED["a product of a size between"].manifest()
    figure = Assumption("link.latency", 1e-6, "s", SUPPOSED)
    supposed = replace(manifest, target=replace(manifest.target, assumptions=(figure,)))
    assert validation(supposed).startswith("not validated on this device")


def test_a_program_of_no_known_operator_has_no_nearest_row() -> None:
    known = Program("sn10", ("StringSplit",), 1, 1).manifest()
    assert validation(known) == "not validated on this device"
    assert validation(detector()).startswith("not validated on this device; the nearest published")


def test_the_nearest_row_is_of_the_operators_first_and_of_the_device_then() -> None:
    known = coverage(like("sn10/gemm/1024", target="sn30").manifest(), ())
    assert known.nearest.startswith("sn10/gemm/")
    known = coverage(like(GPT2, target="sn30").manifest(), ())
    assert known.nearest.startswith("sn30/gpt2/o3/")


def test_likeness_is_a_share_of_both() -> None:
    one = PublishedProgram("t", "o3", False, 1, frozenset(), frozenset("ab"), 1, 1)
    assert one.alike(replace(one, operators=frozenset("abcd"))) == 0.5
    assert one.alike(replace(one, operators=frozenset())) == 0.0
