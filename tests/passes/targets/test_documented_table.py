"""The vendor's published operator table, transcribed, against the rows of the built-in targets."""

from __future__ import annotations

import pytest

from samba_onnx.passes.targets import Status, available_targets, load_target
from tests.passes.targets.statuses import with_status

FLOATS = "bfloat16 float32"

# torch operator: its ONNX operators, full support, experimental support. Scalars, mixed precision
# and FP16 have no counterpart in ONNX's type lists. matmul's own cells are cut in the published
# page after BF16; linear, addmm and bmm give the rest.
DOCUMENTED = {
    "add": ("Add", FLOATS, "int16 int32 int64 bool"),
    "addmm": ("Gemm", FLOATS, ""),
    "bitwise_not": ("Not", "bool", ""),
    "bmm": ("MatMul", FLOATS, "int16 int32 int64 bool"),
    "cat": ("Concat", f"{FLOATS} int16 int32 int64", "bool"),
    "cross_entropy": ("SoftmaxCrossEntropyLoss", "bfloat16", ""),
    "cumsum": ("CumSum", f"{FLOATS} int64", "int16 int32"),
    "div": ("Div", FLOATS, ""),
    "dropout": ("Dropout", FLOATS, ""),
    "expand": ("Expand", f"{FLOATS} bool", "int16 int32 int64"),
    "flatten": ("Flatten", FLOATS, "int16 int32 int64 bool"),
    "gelu": ("Gelu", "bfloat16", ""),
    "index_select": ("Gather", f"{FLOATS} int64", "int16 int32 bool"),
    "linear": ("Gemm", FLOATS, ""),
    "masked_fill": ("Where", "bfloat16", "int16 int32 int64 bool"),
    "matmul": ("MatMul", FLOATS, "int16 int32 int64 bool"),
}
# logical_or takes numbers too in torch; ONNX's Or has booleans only.
BOOLEAN_ONLY = {"logical_or": "Or"}


@pytest.mark.parametrize("name", available_targets())
@pytest.mark.parametrize("torch_name", DOCUMENTED)
def test_row_is_as_published(name: str, torch_name: str) -> None:
    op_type, full, experimental = DOCUMENTED[torch_name]
    row = load_target(name).row("", op_type)

    assert row is not None
    assert row.evidence == "documented"
    assert set(with_status(row, Status.FULL)) == set(full.split())
    assert set(with_status(row, Status.EXPERIMENTAL)) == set(experimental.split())
    assert torch_name in row.source


@pytest.mark.parametrize("name", available_targets())
def test_boolean_rows_are_as_published(name: str) -> None:
    for torch_name, op_type in BOOLEAN_ONLY.items():
        row = load_target(name).row("", op_type)
        assert row is not None
        assert with_status(row, Status.FULL) == ("bool",)
        assert torch_name in row.source


@pytest.mark.parametrize("name", available_targets())
def test_nothing_else_is_called_documented(name: str) -> None:
    published = {op_type for op_type, *_ in DOCUMENTED.values()} | set(BOOLEAN_ONLY.values())
    documented = {row.op_type for row in load_target(name).rows if row.evidence == "documented"}

    assert documented == published


@pytest.mark.parametrize("name", available_targets())
def test_types_that_no_document_names_are_refused(name: str) -> None:
    target = load_target(name)
    listed = {
        dtype for row in target.rows for status in Status for dtype in with_status(row, status)
    }

    assert listed <= {"bfloat16", "float32", "int8", "int16", "int32", "int64", "bool"}
    assert listed == set(target.dtypes)


# Published hardware figures: bytes of SRAM, HBM, DDR; operations per second in bfloat16.
FIGURES = {
    "sn10": (300e6, None, 1.5e12, 320e12),
    "sn30": (640e6, None, 1e12, 688e12),
    "sn40l": (520e6, 64e9, 1.5e12, 638e12),
}


@pytest.mark.parametrize("name", FIGURES)
def test_hardware_is_as_published(name: str) -> None:
    summary = load_target(name).summary
    sram, hbm, ddr, flops = FIGURES[name]
    sizes = {tier.name: tier.bytes for tier in summary.tiers}

    assert summary.name == name
    assert (sizes["sram"], sizes.get("hbm"), sizes["ddr"]) == (sram, hbm, ddr)
    assert summary.peak_flops["bfloat16"] == flops
    assert list(sizes) == [tier for tier in ("sram", "hbm", "ddr") if tier in sizes]


@pytest.mark.parametrize("name", FIGURES)
def test_unpublished_figures_are_assumptions(name: str) -> None:
    summary = load_target(name).summary
    assumed = {assumption.name: assumption for assumption in summary.assumptions}

    assert {"peak_flops.float32", "link.bytes_per_second", "link.latency"} <= set(assumed)
    assert "peak_flops.bfloat16" not in assumed
    assert assumed["peak_flops.float32"].value == summary.peak_flops["float32"]
    assert assumed["link.latency"].value == summary.link_latency_seconds
    assert all(assumption.note and assumption.unit for assumption in summary.assumptions)


def test_figures_of_a_node_are_divided_by_its_sockets() -> None:
    summary = load_target("sn40l").summary

    assert summary.tier("hbm").bytes_per_second == 25.6e12 / 16
    assert summary.tier("ddr").bytes_per_second == 1600e9 / 16
