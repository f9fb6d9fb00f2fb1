"""What a file of arrays says of its size is looked at before any of it is read."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import InputError, UsageError
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.array_files import read_inputs
from samba_onnx.runtime.inputs import InputSpec
from samba_onnx.safety.array_files import sample_shapes

LARGE = 1 << 26


def test_large_arrays_that_no_input_takes_are_not_read(tmp_path: Path) -> None:
    specs = {"x": InputSpec(Symbol("x", SymbolKind.INPUT, "tensor(float)", (2, 3), "x"))}
    packed, hole = tmp_path / "a.npz", tmp_path / "x.npy"
    np.savez_compressed(packed, x=np.zeros(LARGE, np.float32))
    np.lib.format.open_memmap(hole, "w+", np.float32, (LARGE,)).flush()
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(hole, "other.npy")
    tracemalloc.start()
    try:
        for text in (f"x={packed}", f"{packed}", f"x={hole}", f"x={tmp_path / 'b.npz'}"):
            with pytest.raises(InputError, match=r"input 'x' has shape \[67108864\]"):
                read_inputs([text], specs)
        with pytest.raises(UsageError, match="holds 'other', which is no input"):
            read_inputs([os.fspath(tmp_path / "b.npz")], specs)
        assert sample_shapes([f"x={hole}", os.fspath(tmp_path / "b.npz")]) == {"x": (LARGE,), "other": (LARGE,)}  # fmt: skip
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
