from __future__ import annotations

from dataclasses import replace

from samba_onnx.passes.targets import load_target
from samba_onnx.program.kinds import SectionType
from samba_onnx.report.fidelity import program_kind, validation
from tests.report.samples import all_on_rdu, detector


def test_programs_of_which_none_is_published_are_not_validated() -> None:
    for manifest in (detector(), all_on_rdu()):
        assert program_kind(manifest) == ""
        assert validation(manifest).startswith("not validated")


def test_a_program_has_the_band_of_its_kind() -> None:
    manifest = replace(all_on_rdu(), target=load_target("sn30").summary)
    (section,) = manifest.sections
    backward = replace(section, type=SectionType.BCKWD)
    training = replace(manifest, sections=(section, backward))
    assert program_kind(training) == "training o3"
    assert "times the measured ones" in validation(training)
    assert program_kind(replace(manifest, sections=(replace(section, operators={"Gemm": 1}),))) == (
        "single operators"
    )
    attention = replace(section, operators={"Softmax": 1, "MatMul": 1})
    token = replace(attention, flops=100, bytes=100)
    assert program_kind(replace(manifest, sections=(token,))) == "decoding"
    prompt = replace(attention, flops=10_000, bytes=100)
    assert program_kind(replace(manifest, sections=(prompt,))) == "prefill"
