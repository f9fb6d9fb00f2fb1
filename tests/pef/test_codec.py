"""The manifest as JSON: one form, and every record comes back."""

from __future__ import annotations

import dataclasses
import json

import pytest

from samba_onnx.errors import InternalError, PefFormatError
from samba_onnx.pef.codec import decode_manifest, encode_manifest
from samba_onnx.pef.consistency import check_manifest
from samba_onnx.pef.dimensions import DynamicDimension
from samba_onnx.pef.manifest import (
    Argin,
    Manifest,
    Member,
)
from samba_onnx.pef.original_files import OriginalFile
from samba_onnx.pef.rewrite_records import PassSummary
from samba_onnx.pef.target_summary import Assumption
from samba_onnx.program.kinds import SectionType
from tests.pef.builders import manifest, weights_layout


def _full() -> Manifest:
    """A manifest that uses every field."""
    toy = manifest(weights_layout())
    return dataclasses.replace(
        toy,
        target=dataclasses.replace(
            toy.target, assumptions=(Assumption("link", 0.1, "GB/s", "a guess"),)
        ),
        sections=(dataclasses.replace(toy.sections[0], type=SectionType.GRADNORM),),
        argins=(Argin("lr", "tensor(float)", 1e-3, (0, 1)),),
        passes=(PassSummary("fold", True, 3, 2),),
        dynamic_dimensions=(DynamicDimension("batch", ("x[0]",), "--dim batch=8"),),
        experimental={"Softsign: assumed": 1, "Mul: observed": 2},
        notes=("grüße\n\x00\u2028",),
        metadata={"b": "2", "a": '"'},
        members=(Member("weights.safetensors", 1 << 40, "00"),),
    )


def test_every_record_comes_back() -> None:
    full = _full()
    assert decode_manifest(encode_manifest(full)) == full


def test_the_same_records_give_the_same_bytes() -> None:
    full = _full()
    swapped = dataclasses.replace(full, metadata=dict(reversed(full.metadata.items())))
    assert encode_manifest(swapped) == encode_manifest(full)


def test_text_is_compact_and_sorted() -> None:
    text = encode_manifest(_full())
    tree = json.loads(text)
    compact = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert text == compact.encode()


def test_whole_numbers_for_fractions_are_the_same_records() -> None:
    full = _full()
    argins = (dataclasses.replace(full.argins[0], default=1),)
    whole = dataclasses.replace(full, argins=argins)
    fraction = dataclasses.replace(full, argins=(dataclasses.replace(argins[0], default=1.0),))
    assert encode_manifest(whole) == encode_manifest(fraction)


@pytest.mark.parametrize("value", [None, float("nan"), object(), {1}])
def test_values_of_other_types_cannot_be_written(value: object) -> None:
    wrong = dataclasses.replace(_full(), level=value)  # type: ignore[arg-type]
    with pytest.raises(InternalError, match="cannot be written"):
        encode_manifest(wrong)


def test_fractions_that_json_has_not_cannot_be_written() -> None:
    full = _full()
    endless = dataclasses.replace(full.argins[0], default=float("inf"))
    with pytest.raises(InternalError, match="cannot be written"):
        encode_manifest(dataclasses.replace(full, argins=(endless,)))


def test_a_manifest_beyond_the_limit_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samba_onnx.pef.codec.MANIFEST_LIMIT", 10)
    with pytest.raises(PefFormatError, match="more than 10"):
        decode_manifest(encode_manifest(_full()))


def test_how_long_a_pass_took_is_no_part_of_the_file() -> None:
    done = PassSummary("fold", True, 3, 2, seconds=0.25)
    timed = dataclasses.replace(_full(), passes=(done,))
    assert encode_manifest(timed) == encode_manifest(_full())
    (read,) = decode_manifest(encode_manifest(timed)).passes
    assert read.seconds is None
    assert read == done


def test_a_manifest_from_before_files_were_recorded_reads_the_same() -> None:
    """The field is there exactly where it says something, so that old bytes are canonical still."""
    old = manifest(weights_layout())
    text = encode_manifest(old)
    assert "files" not in json.loads(text)["source"]
    assert decode_manifest(text).source.files == ()
    files = (OriginalFile("toy.onnx", 3, "0" * 64),)
    new = dataclasses.replace(old, source=dataclasses.replace(old.source, files=files))
    text = encode_manifest(new)
    assert decode_manifest(text) == new
    empty = json.loads(text)
    empty["source"]["files"] = []
    with pytest.raises(PefFormatError, match=r"'source\.files': an empty field is left out"):
        decode_manifest(json.dumps(empty, sort_keys=True, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((OriginalFile("m", -1, "0" * 64),), "m of the source model"),
        ((OriginalFile("m", 1, "0" * 63),), "m of the source model has no SHA-256"),
        ((OriginalFile("m", 1, "G" * 64),), "m of the source model has no SHA-256"),
        ((OriginalFile("m", 1, "0" * 64),) * 3, "file beside the source model"),
    ],
)
def test_impossible_files_of_the_source_are_refused(
    files: tuple[OriginalFile, ...], words: str
) -> None:
    good = manifest(weights_layout())
    wrong = dataclasses.replace(good, source=dataclasses.replace(good.source, files=files))
    with pytest.raises(PefFormatError, match=words):
        check_manifest(wrong)
