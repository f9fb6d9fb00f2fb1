"""What checks every manifest of the suite finds what is wrong in one."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from samba_onnx.pef import writer
from samba_onnx.pef.codec import encode_manifest
from tests.pef.builders import manifest, weights_layout
from tests.pef.written_manifests import check_written


def _text(change: Any) -> bytes:
    tree = json.loads(encode_manifest(manifest(weights_layout())))
    change(tree)
    return json.dumps(tree).encode()


def test_a_good_manifest_passes() -> None:
    check_written(encode_manifest(manifest(weights_layout())))


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree["symbols"][-1].update(kind="toy"),
        lambda tree: tree["symbols"][-1].update(bytes="4800"),
        lambda tree: tree["sections"][-1]["operators"].update(Add="1"),
        lambda tree: tree["graphs"][0]["run_transfers"][-1].pop("cause"),
    ],
)
def test_one_wrong_item_of_a_list_is_found(change: Any) -> None:
    check_written(encode_manifest(manifest(weights_layout())))  # so that the good form is known
    with pytest.raises(jsonschema.ValidationError):
        check_written(_text(change))


def test_it_sees_what_tests_write() -> None:
    assert writer.encode_manifest is not encode_manifest
