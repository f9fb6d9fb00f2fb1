"""Sessions compile, trace and run in a precision."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.pef import load_pef
from samba_onnx.report import Report
from samba_onnx.sessions import SambaSession


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))


def test_weights_and_transfers_of_an_inference_take_half_the_bytes(
    session: SambaSession, tmp_path: Path
) -> None:
    model, x = network().eval(), samba.randn(4, 8, name="x")
    expected = model(samba.to_torch(x)).detach()
    sizes = {}
    for precision in ("fp32", "bf16"):
        path = session.compile(model, (x,), output=tmp_path / "m.pef", precision=precision)
        outputs = samba.utils.trace_graph(model, (x,), pef=path)
        with load_pef(path) as opened:
            manifest = opened.manifest
        regions = {s.name: s.region for s in manifest.symbols if s.kind == "weight"}
        bytes_of = {region.name: region.bytes for region in manifest.regions}
        sent = {t.symbol: t.bytes for t in session.transfers.records if t.symbol in regions}
        assert {name: bytes_of[region] for name, region in regions.items()} == sent
        sizes[precision] = sum(sent.values())
        (result,) = session.run((x,), outputs)
        assert result.dtype is torch.float32
        error = (samba.to_torch(result) - expected).abs().max()
        assert (error > 1e-3) == (precision == "bf16")
        assert error < 2**-6
    assert sizes["bf16"] * 2 == sizes["fp32"]
    weight = next(iter(model.parameters()))
    assert weight.dtype is torch.float32
    with load_pef(path) as opened:
        assert any("Precision bf16" in note for note in Report.from_manifest(opened.manifest).notes)


def test_training_updates_float32_weights(session: SambaSession, tmp_path: Path) -> None:
    model, x = network(), samba.randn(4, 8, name="x")
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=1e-5, momentum=0.0, weight_decay=0.0)
    before = samba.to_torch(model[0].weight).clone()
    path = session.compile(
        model,
        (x,),
        optimizer,
        output=tmp_path / "m.pef",
        config_dict={"graphamp_preset": "default"},
    )
    outputs = samba.utils.trace_graph(model, (x,), optimizer, pef=path)
    for _ in range(3):
        session.run((x,), outputs)
    model[0].weight.cpu()
    after = samba.to_torch(model[0].weight)
    moved = (after - before).abs()
    # Less than a bfloat16 could move: half of 2**-8 of each weight.
    assert 0 < moved.max() < 2**-9 * before.abs().median()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"graphamp_preset": "mp2"}, "mp0, mp1, mp4, default"), ({"precision": "fp8"}, "fp32, mixed")],
)
def test_unknown_names_are_refused(
    session: SambaSession, tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        session.compile(
            network(),
            (samba.randn(4, 8, name="x"),),
            output=tmp_path / "m.pef",
            config_dict=settings,
        )


def test_a_module_of_float16_computes_on_the_rdu_in_bfloat16(
    session: SambaSession, tmp_path: Path
) -> None:
    """Inputs and outputs are float16, which is converted on the host; weights are sent as bfloat16."""
    model, x = network().half().eval(), samba.from_torch_tensor(torch.randn(4, 8).half(), name="x")
    path = session.compile(model, (x,), output=tmp_path / "m.pef", precision="bf16")
    outputs = samba.utils.trace_graph(model, (x,), pef=path)
    (result,) = session.run((x,), outputs)
    assert result.dtype is torch.float16
    torchs = model.bfloat16()(samba.to_torch(x).bfloat16()).detach()
    assert (samba.to_torch(result).float() - torchs.float()).abs().max() <= 2**-8
    with load_pef(path) as opened:
        report = Report.from_manifest(opened.manifest)
        types = {s.type for s in opened.manifest.symbols if s.kind == "weight"}
    assert {one.operator for one in report.coverage.operators if one.cpu_nodes} == {"Cast"}
    assert report.coverage.rdu_nodes == 4
    assert types == {"tensor(bfloat16)"}
