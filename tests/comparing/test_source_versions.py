"""Which file of a model makes it another version."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest

from samba_onnx.comparing.source_versions import other_version
from samba_onnx.loading import load_model
from samba_onnx.pef import Pef, load_pef, write_pef
from samba_onnx.pef.original_files import OriginalFile
from tests.pef.builders import manifest, reference, stages, weights_layout
from tests.safety.small_models import with_weight


def _saved(path: Path, value: float) -> Path:
    """A model whose weight lies beside it."""
    weight = onnx.numpy_helper.from_array(np.full((2, 3), value, np.float32), "w")
    path.parent.mkdir(exist_ok=True)
    place = path.parent / "w.bin"
    place.unlink(missing_ok=True)
    model = with_weight(weight)
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def _pef_of(path: Path, files: tuple[OriginalFile, ...]) -> Pef:
    layout = weights_layout()
    records = manifest(layout)
    records = dataclasses.replace(records, source=dataclasses.replace(records.source, files=files))
    write_pef(
        path, records, weights=layout, stages=stages(layout), reference=reference()
    )  # of another model, which nobody looks at here
    return load_pef(path)


def test_external_data_counts_and_the_name_of_the_model_does_not(tmp_path: Path) -> None:
    first = load_model(_saved(tmp_path / "a" / "m.onnx", 0.5)).digests()
    with _pef_of(tmp_path / "m.pef", first) as pef:
        assert other_version(pef, load_model(_saved(tmp_path / "b" / "renamed.onnx", 0.5))) == ""
        other = load_model(_saved(tmp_path / "c" / "m.onnx", 0.25))
        now = other.digests()
        assert now[0].sha256 == first[0].sha256  # the graph is the same, the weights are not
        text = other_version(pef, other)
        assert f"SHA-256 of w.bin is {now[1].sha256[:12]}…, and was {first[1].sha256[:12]}…" in text


@pytest.mark.parametrize("known", [True, False])
def test_a_file_that_was_not_there_counts_if_the_pef_knows(tmp_path: Path, known: bool) -> None:
    loaded = load_model(_saved(tmp_path / "m.onnx", 0.5))
    files = loaded.digests()[:1] if known else ()
    with _pef_of(tmp_path / "m.pef", files) as pef:
        words = "and was none (there is no such file) then" if known else ""
        assert other_version(pef, loaded).endswith(words)
        assert bool(other_version(pef, loaded)) == known
        in_memory = load_model(onnx.load(tmp_path / "m.onnx"))
        assert other_version(pef, in_memory) == ""
