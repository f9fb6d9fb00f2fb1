"""``samba-port validate``: times that a device took beside the plan, and a profile that fits them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import onnx.parser
import pytest

from samba_onnx.cli.application import run_command
from samba_onnx.passes.targets import load_target
from samba_onnx.pef import load_pef
from samba_onnx.pef.stage_records import SectionTime
from samba_onnx.tools.validate.measurements import Measured, ScaledCall
from samba_onnx.tools.validate.profile_fit import fitted, geometric_error, left_out
from tests.cli.conftest import SambaPort

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[512,512] x, float[512,512] v) => (float[512,512] y, float[512,512] z) { y = MatMul(x, v) z = Relu(y) }"""
SCHEMA = Path(__file__).parents[3] / "docs" / "validation.schema.json"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pefs")
    onnx.save(onnx.parser.parse_model(MODEL), folder / "m.onnx")
    for name, target in (("m.pef", "sn10"), ("n.pef", "sn30")):
        arguments = ("convert", folder / "m.onnx", "-o", folder / name, "--target", target)
        assert run_command([*map(str, arguments), "--level", "o0", "-q"]) == 0
    return folder


@pytest.fixture
def pef(compiled: Path, tmp_path: Path) -> Path:
    for name in ("m.pef", "n.pef"):
        shutil.copy(compiled / name, tmp_path / name)
    return tmp_path / "m.pef"


def table(folder: Path, *lines: str) -> Path:
    path = folder / "results.csv"
    path.write_text("\n".join(("pef,section,seconds", *lines)) + "\n", encoding="utf-8")
    return path


def test_times_as_planned_are_near(samba_port: SambaPort, pef: Path) -> None:
    with load_pef(pef) as read:
        sections = read.manifest.sections
    lines = [f"m.pef,{one.id},{one.seconds * 1.1}" for one in sections if one.seconds]
    path = table(pef.parent, *lines)
    result = samba_port("validate", path, "--json", "-")
    assert (result.status, result.err) == (0, "")
    document = json.loads(result.out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["error"] == pytest.approx(0.1)
    assert [one["ratio"] for one in document["times"]] == pytest.approx([1 / 1.1] * len(lines))
    assert (document["profile"], document["constants"]) == (None, [])
    assert samba_port("validate", path, "--within", "1.05").status == 1
    text = samba_port("validate", path).out
    assert "off by 10% on average" in text
    assert "Where the model is off" in text


def test_a_profile_has_what_times_rest_on_and_nothing_else(
    samba_port: SambaPort, pef: Path
) -> None:
    with load_pef(pef) as read:
        manifest = read.manifest
    lines = [f"m.pef,{one.id},{one.seconds * 2}" for one in manifest.sections if one.seconds]
    profile = pef.parent / "my_rdu.toml"
    path = table(pef.parent, *lines)
    result = samba_port("validate", path, "--fit", profile, "--json", "-")
    assert result.err == ""
    document = json.loads(result.out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["profile"] == str(profile)
    own, base = load_target(str(profile)).summary, load_target("sn10").summary
    by_name = {one["name"]: one for one in document["constants"]}
    assert own.timing is not None
    assert base.timing is not None
    assert own.name == "my_rdu"
    # What no time rests on is as it was planned, and the file does not have it.
    untouched = by_name["timing.product_efficiency"]
    assert (untouched["rows"], untouched["fitted"]) == (0, untouched["planned"])
    assert "product_efficiency" not in profile.read_text()
    slower = base.tier("ddr").narrow_bytes_per_second / own.tier("ddr").narrow_bytes_per_second
    assert 1.5 < slower < 2.5
    assert "fitted to 2 measured times of results.csv" in profile.read_text()
    assert "none: as planned" in samba_port("validate", path, "--fit", profile).out


def test_a_whole_run_is_that_of_the_plan(samba_port: SambaPort, pef: Path) -> None:
    path = table(pef.parent, "m.pef,,1")
    document = json.loads(samba_port("validate", path, "--json", "-").out)
    report = json.loads(samba_port("inspect", pef, "--json", "-").out)
    assert document["times"][0]["modelled_seconds"] == pytest.approx(
        report["modelled_time"]["total_seconds"]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pef,seconds\n", "no column section"),
        ("pef,section,seconds\n", "no measured time"),
        ("pef,section,seconds\nm.pef,,soon\n", "line 2: 'soon' is no time in seconds"),
        ("pef,section,seconds\nm.pef,77,1\n", "m.pef has no section 77"),
        ("pef,section,seconds\n,1,1\n", "line 2: it names no PEF"),
        ("pef,section,seconds\nm.pef,,-1\n", "no time in seconds"),
    ],
)
def test_what_a_table_lacks_is_named(
    samba_port: SambaPort, pef: Path, text: str, message: str
) -> None:
    path = pef.parent / "results.csv"
    path.write_text(text, encoding="utf-8")
    result = samba_port("validate", path)
    assert result.status == 2
    assert message in result.err


def test_a_profile_needs_one_known_target_and_two_times(samba_port: SambaPort, pef: Path) -> None:
    profile = pef.parent / "own.toml"
    one = samba_port("validate", table(pef.parent, "m.pef,,1"), "--fit", profile)
    assert (one.status, "two measured times" in one.err) == (2, True)
    path = table(pef.parent, "m.pef,,1", "n.pef,,1")
    result = samba_port("validate", path, "--fit", profile)
    assert (result.status, "several targets: sn10, sn30" in result.err) == (2, True)


def test_the_fit_finds_what_times_were_made_with_and_says_what_it_rests_on() -> None:
    launch, product = "timing.device_launch_seconds", "timing.product_efficiency"
    true = {launch: 1.5, product: 0.7, "off_chip": 1.3}
    parts = [(1e-3, 0, 0), (1e-5, 1e-2, 0), (1e-5, 2e-2, 1e-3), (1e-5, 0, 1e-2), (1e-5, 0, 3e-2)]
    measured = []
    for place, (start, compute, off_chip) in enumerate(parts):
        time = SectionTime(launch=start, compute=compute, off_chip=off_chip)
        piece = ScaledCall(time, launch, product)
        measured.append(Measured(str(place), piece.seconds(true), (piece,), 0.0))
    fit = fitted(measured)
    assert dict(fit.factors) == pytest.approx(true, rel=0.02)
    assert dict(fit.rows) == {launch: 1, product: 2, "off_chip": 2}
    # Without its only time a constant is as planned, and that time is off by what was true.
    assert left_out(measured)[0] == pytest.approx(1 / 1.5, rel=0.02)
    assert geometric_error([2.0, 0.5]) == pytest.approx(1.0)
