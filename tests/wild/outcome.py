"""What converting and verifying a subject came to, and which of two outcomes is better."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import samba_onnx
from samba_onnx.errors import SambaError
from samba_onnx.pef.manifest import Manifest
from tests.wild.subject import Subject

REFUSED, WRONG, RIGHT = "refused", "wrong", "right"
"""Results of a subject, from the worst to the best."""

_PATHS = re.compile(r"/\S*/\S*")
"""Of temporary files, which are others in every run."""

_WORST_FIRST = (REFUSED, WRONG, RIGHT)


@dataclass(frozen=True)
class Outcome:
    """What became of one subject."""

    result: str
    """``right`` where the emulator computes what onnxruntime computes of the original; ``wrong`` where
    it does not, or does not run; ``refused`` where there is no PEF."""
    original: int = 0
    """Nodes of the model as its tool wrote it, without subgraphs."""
    nodes: int = 0
    """Nodes of the PEF."""
    on_rdu: int = 0
    """Those of them in sections."""
    boundaries: int = 0
    """Changes between RDU and CPU in a run."""
    bytes: int = 0
    """Bytes that a run copies between host and device."""
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    """Nodes on the CPU by operator."""
    reason: str = ""
    """Why it was refused, or could not be verified."""
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Why a node of each operator is on the CPU: the first sentence of one; words may change."""

    @property
    def on_cpu(self) -> int:
        """How many nodes fall back."""
        return self.nodes - self.on_rdu

    @property
    def badness(self) -> tuple[int, ...]:
        """What is compared, in this order; less is better.

        What computes right comes first. A fallback that goes may cost nodes on the RDU, and nodes may
        cost bytes, so that each counts only where what stands before it is the same.
        """
        return (
            len(_WORST_FIRST) - _WORST_FIRST.index(self.result),
            self.on_cpu,
            self.boundaries,
            self.nodes,
            self.bytes,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the outcome without what is zero or empty."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value}


def measure(subject: Subject, folder: Path) -> Outcome:
    """Build, convert and verify a subject.

    Args:
        subject: From the catalogue.
        folder: Where the PEF goes.
    """
    model = subject.build()
    try:
        pef = samba_onnx.convert(
            model,
            folder / "subject.pef",
            dims=subject.dims,
            input_shapes=subject.shapes,
            placement="strict",  # the table says what the target can run, not what pays there
        )
    except SambaError as error:
        return Outcome(REFUSED, reason=_told(error))
    with pef:
        inputs = subject.inputs() if subject.inputs else None
        try:
            verification = samba_onnx.verify(model, pef, inputs=inputs, threads=1)
        except SambaError as error:
            return dataclasses.replace(described(pef.manifest, WRONG), reason=_told(error))
        right = all(output.passed for output in verification.outputs)
        return described(pef.manifest, RIGHT if right else WRONG)


def _told(error: SambaError) -> str:
    return _PATHS.sub("...", f"{type(error).__name__}: {error}")


def described(manifest: Manifest, result: str) -> Outcome:
    """Return what the table says of a PEF.

    Args:
        manifest: Of a PEF with one graph.
        result: Of its verification.
    """
    (graph,) = manifest.graphs
    on_cpu = [node for fallback in manifest.fallbacks for node in fallback.reasons]
    fallen = collections.Counter(node.op_type for node in on_cpu)
    reasons = {node.op_type: node.reason for node in reversed(on_cpu)}
    on_rdu = sum(section.nodes for section in manifest.sections)
    return Outcome(
        result,
        original=manifest.source.nodes,
        nodes=on_rdu + sum(fallback.nodes for fallback in manifest.fallbacks),
        on_rdu=on_rdu,
        boundaries=len(graph.boundaries),
        bytes=sum(transfer.bytes for transfer in graph.run_transfers),
        fallbacks=dict(sorted(fallen.items())),
        reasons=dict(sorted(reasons.items())),
    )
