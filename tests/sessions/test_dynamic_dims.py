"""Dimensions that programs declare dynamic: they can be read, and runs take the sizes of the PEF only."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import InputError, UsageError
from samba_onnx.pef import load_pef
from samba_onnx.report import Report
from samba_onnx.sessions import DimInfo, SambaSession

BATCH = "batch_size_min_1_max_16_factor_1"
"""As programs of SambaNova's write it."""


def test_programs_read_what_was_declared(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert session.dynamic_dims == {}
    with caplog.at_level(logging.WARNING, "samba_onnx"):
        assert session.create_dynamic_dim("batch_size", 1, 16) == BATCH
    assert "compile for 16 and pad" in caplog.text
    path = tmp_path / "dims.yaml"
    path.write_text(
        "batch_size_min_1_max_16_factor_1: {min: 1, max: 16}\n"
        "sequence_length_cache_gen: {min: 512, max: 1024, factor: 512}\n"
    )
    session.load_dynamic_dims_config(path)
    assert session.dynamic_dims == {
        BATCH: DimInfo(1, 16, 1),
        "sequence_length_cache_gen_min_512_max_1024_factor_512": DimInfo(512, 1024, 512),
    }
    session.reset()
    assert session.dynamic_dims == {}


def test_a_pef_takes_the_sizes_that_it_is_compiled_for(
    session: SambaSession, tmp_path: Path
) -> None:
    name = session.create_dynamic_dim("batch_size", 1, 4)
    x = samba.from_torch_tensor(torch.randn(4, 3), name="x", sized_dims=[name, None])
    model = nn.Linear(3, 2).eval()
    path = session.compile(model, (x,), output=tmp_path / "m.pef")
    with load_pef(path) as opened:
        assert name in " ".join(Report.from_manifest(opened.manifest).notes)
    outputs = samba.utils.trace_graph(model, (x,), pef=path)
    assert session.run((x,), outputs)[0].shape == (4, 2)
    with pytest.raises(InputError, match=r"shape \[2, 3\], compiled was .*\[4, 3\]"):
        session.run((samba.ones(2, 3, name="x"),), outputs)


@pytest.mark.parametrize("sizes", [(0, 4, 1), (5, 4, 1), (1, 4, 0), (1, 4, 3), (1, 4.0, 1)])
def test_sizes_that_contradict_each_other_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="a dynamic dimension was given"):
        DimInfo(*sizes)


@pytest.mark.parametrize(
    "text", ["", "3", "- 4", "a: {min: 1}", "a: {min: 1, max: 2, most: 3}", "{"]
)
def test_files_of_another_form_are_refused(
    text: str, session: SambaSession, tmp_path: Path
) -> None:
    path = tmp_path / "dims.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"dims\.yaml"):
        session.load_dynamic_dims_config(path)
    assert session.dynamic_dims == {}
    with pytest.raises(UsageError, match=r"none\.yaml cannot be read"):
        session.load_dynamic_dims_config(tmp_path / "none.yaml")


def test_what_is_said_of_a_dimension_and_of_a_file(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "samba_onnx.sessions.dynamic_dims"):
        key = session.create_dynamic_dim("batch_size", 16, 16, 16)
    assert session.dynamic_dims == {key: DimInfo(16, 16, 16)}
    (text,) = caplog.messages
    assert text.startswith(f"{key} is declared dynamic: ")
    path = tmp_path / "dims.yaml"
    path.write_text("batch_size: 3")
    with pytest.raises(
        UsageError,
        match=r"dimensions; give lines such as 'batch_size: \{min: 1, max: 16, factor: 1\}'$",
    ) as error:
        session.load_dynamic_dims_config(path)
    assert error.value.path == str(path)
