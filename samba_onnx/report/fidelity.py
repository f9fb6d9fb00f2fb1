"""How near modelled times of a kind of program are to published ones (``docs/fidelity.md``)."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.kinds import SectionType

__all__ = ["program_kind", "validation"]

_FILE: Final = Path(__file__).with_name("fidelity.toml")
_ATTENTION: Final = frozenset({"Softmax", "Attention"})
_TOKEN: Final = 16.0
"""Operations per byte of off-chip traffic below which a language model reads one token at a time: two for
every weight of two bytes, and as many per sequence."""


def program_kind(manifest: Manifest) -> str:
    """Return the kind of program by which published figures are grouped; empty for any other."""
    nodes = sum(section.nodes for section in manifest.sections)
    # Published times are of programs that run on the RDU as a whole, and of no model at peak rates.
    if manifest.target.timing is None or manifest.fallbacks or not nodes:
        return ""
    # Before attention is looked for: programs that train have that, too.
    if any(section.type is SectionType.BCKWD for section in manifest.sections):
        return f"training {manifest.level}"
    # Before attention, too: a Softmax by itself is a single operator.
    if nodes == 1:
        return "single operators"
    if any(_ATTENTION & section.operators.keys() for section in manifest.sections):
        flops = sum(section.flops for section in manifest.sections)
        moved = sum(section.bytes for section in manifest.sections)
        # Nothing in a manifest says how many tokens a run reads: the work for each byte does.
        return "decoding" if flops < _TOKEN * moved else "prefill"
    return ""


def validation(manifest: Manifest) -> str:
    """Return in a sentence what is known of the error of modelled times.

    Args:
        manifest: A PEF's manifest.
    """
    kind = program_kind(manifest)
    band = _bands().get(kind)
    if band is None:
        return "not validated: no times of such a program on such a device are published"
    return (
        f"of {band['rows']} published figures of this kind ({kind}), modelled times are "
        f"{band['least']:g} to {band['greatest']:g} times the measured ones"
    )


@functools.cache
def _bands() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
