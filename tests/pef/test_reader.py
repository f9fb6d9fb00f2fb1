"""Reading: what a good PEF gives, and when damage to its weights is noticed."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from samba_onnx.errors import PefChecksumError, PefFormatError, UsageError
from samba_onnx.pef import load_pef, reader
from tests.pef.builders import SAMPLE, WEIGHT, answer
from tests.pef.forging import dissect


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the toy's weights as large, so that they are not hashed when loading."""
    monkeypatch.setattr(reader, "EAGER_LIMIT", 100)


@pytest.fixture
def damaged(toy: Path, tmp_path: Path) -> Path:
    """A PEF with one changed byte in a weight."""
    content = bytearray(toy.read_bytes())
    with load_pef(toy) as pef:
        where = pef.symbol("w").stored
        assert where is not None
        content[pef.member_offset("weights.safetensors") + where.offset + 401] ^= 1
    path = tmp_path / "damaged.pef"
    path.write_bytes(content)
    return path


def test_weights_are_views_of_the_file(toy: Path) -> None:
    with load_pef(toy) as pef:
        weight = pef.weight("w")
        assert not weight.flags.writeable
        assert not weight.flags.owndata
        assert weight.ctypes.data % 64 == 0
    np.testing.assert_array_equal(weight, WEIGHT)  # still there after closing


def test_the_reference_sample_comes_back(toy: Path) -> None:
    with load_pef(toy) as pef:
        np.testing.assert_array_equal(pef.reference_inputs()["x"], SAMPLE)
        np.testing.assert_array_equal(pef.reference_outputs()["y"], answer(SAMPLE))


def test_names_that_do_not_exist_are_the_callers_fault(toy: Path) -> None:
    with load_pef(toy) as pef:
        for call in (
            lambda: pef.member("nothing"),
            lambda: pef.member_offset("nothing"),
            lambda: pef.symbol("nothing"),
            lambda: pef.weight("nothing"),
            lambda: pef.weight("x"),
            lambda: pef.stage_model(99),
        ):
            with pytest.raises(UsageError, match=r"toy\.pef: "):
                call()


def test_onnxruntime_runs_the_stages_out_of_the_file_itself(toy: Path) -> None:
    """External data needs nothing but the file's own name and the member's offset added."""
    values: dict[str, np.ndarray] = {"x": SAMPLE}
    with load_pef(toy) as pef:
        start = pef.member_offset("weights.safetensors")
        for call in pef.manifest.graphs[0].calls:
            model = pef.stage_model(call.stage)
            for tensor in model.graph.initializer:
                for entry in tensor.external_data:
                    if entry.key == "location":
                        entry.value = pef.path.name
                    if entry.key == "offset":
                        entry.value = str(start + int(entry.value))
            options = onnxruntime.SessionOptions()
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(pef.path.parent)
            )
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            wanted = [value.name for value in session.get_outputs()]
            given = {value.name: values[value.name] for value in session.get_inputs()}
            values.update(zip(wanted, session.run(wanted, given), strict=True))
        # Two roundings of values below 1 may differ between numpy and onnxruntime.
        expected = pef.reference_outputs()["y"]
        np.testing.assert_allclose(values["y"], expected, rtol=0, atol=2**-23)


def test_damaged_small_weights_are_refused_at_once(damaged: Path) -> None:
    with pytest.raises(PefChecksumError, match=r"damaged\.pef: member weights\.safetensors"):
        load_pef(damaged)


@pytest.mark.usefixtures("lazy")
def test_damaged_large_weights_are_refused_on_request(damaged: Path) -> None:
    with load_pef(damaged) as pef:
        with pytest.raises(PefChecksumError, match=r"damaged\.pef: member weights"):
            pef.verify()
        with pytest.raises(PefChecksumError):
            pef.verify_weights()
    with pytest.raises(PefChecksumError):
        load_pef(damaged, verify=True)


@pytest.mark.usefixtures("lazy")
def test_damaged_large_weights_are_refused_in_the_background(damaged: Path, toy: Path) -> None:
    with load_pef(damaged) as pef:
        future = pef.start_verification()
        assert pef.start_verification() is future
        with pytest.raises(PefChecksumError):
            future.result(timeout=300)
    with load_pef(toy) as pef:
        assert pef.start_verification().result(timeout=300) is None


@pytest.mark.usefixtures("lazy")
def test_closing_stops_a_verification(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()
    original = reader.check_content

    def slow(*arguments: object) -> None:
        started.set()
        assert pef._stop.wait(300)
        original(*arguments)  # type: ignore[arg-type]

    pef = load_pef(toy)
    monkeypatch.setattr(reader, "check_content", slow)
    future = pef.start_verification()
    assert started.wait(300)
    pef.close()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(timeout=0)


def test_small_weights_need_no_background(toy: Path) -> None:
    with load_pef(toy) as pef:
        assert pef.start_verification().done()


def test_progress_counts_over_all_members(toy: Path) -> None:
    told: list[tuple[int, int]] = []
    with load_pef(toy) as pef:
        pef.verify(lambda done, total: told.append((done, total)))
        total = sum(member.bytes for member in pef.manifest.members)
    assert told[-1] == (total, total)
    assert told == sorted(told)


def test_a_replaced_file_is_noticed(toy: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.pef"
    shutil.copy(toy, path)
    with load_pef(path) as pef:
        pef.ensure_unchanged()
        shutil.copy(toy, tmp_path / "other")
        os.replace(tmp_path / "other", path)
        with pytest.raises(PefChecksumError, match="replaced"):
            pef.ensure_unchanged()
        path.unlink()
        with pytest.raises(PefChecksumError, match="replaced"):
            pef.ensure_unchanged()
        np.testing.assert_array_equal(pef.weight("w"), WEIGHT)


def test_a_file_cut_off_while_open_is_noticed(toy: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.pef"
    shutil.copy(toy, path)
    with load_pef(path) as pef:
        os.truncate(path, dissect(toy).slots[0].offset + 10)
        with pytest.raises(PefFormatError, match="too early"):
            pef.verify()


def test_the_path_stays_right_when_the_folder_changes(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(toy.parent)
    with load_pef(toy.name) as pef:
        monkeypatch.chdir("/")
        pef.ensure_unchanged()


def test_looking_into_a_pef_loads_no_numeric_library(toy: Path) -> None:
    program = (
        "import sys; from samba_onnx.pef import load_pef; load_pef(sys.argv[1]);"
        "print({'numpy', 'onnx', 'onnxruntime', 'torch', 'onnx_ir'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(toy)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
