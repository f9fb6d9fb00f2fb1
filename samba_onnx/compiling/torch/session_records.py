"""What compiling leaves in a PEF for the session that will run it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from samba_onnx.errors import PefFormatError
from samba_onnx.importing import OnnxModule
from samba_onnx.optim.records import OptimizerRecord, from_json
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.fingerprint import Fingerprint

KEY: Final = "samba.session"
"""The key of these records in the metadata of a PEF."""


@dataclass(frozen=True)
class GraphRecord:
    """One graph of a PEF."""

    fingerprint: str
    """Text of the program's fingerprint."""
    training: bool = False
    """Whether it was compiled with optimizers, or for gradients of inputs."""
    loss_indices: Any = None
    """Positions of the losses among the flat outputs, named or guessed."""
    gradient_accumulation: bool = False
    keeps_activations: bool = False
    """Whether forward passes keep what backward passes read, rather than what that is computed from."""
    input_gradients: Sequence[str] = ()
    """Names of the inputs that have gradients."""
    optimizers: Sequence[Any] = ()
    """Documents of JSON, one per optimizer."""
    onnx: Any = None
    """For a module made of an ONNX model: its weights by name, and the losses built on it."""
    built_in: Any = None
    """Modes of modules and numbers among the inputs; see ``built_in.built_in``."""


def write_records(records: Mapping[str, GraphRecord]) -> dict[str, str]:
    """Return records as metadata.

    Args:
        records: By graph.
    """
    return {KEY: json.dumps({name: asdict(record) for name, record in records.items()})}


def read_records(pef: Pef) -> dict[str, GraphRecord]:
    """Return the records of a PEF by graph; none for a PEF that no session compiled.

    Args:
        pef: Any.

    Raises:
        PefFormatError: They cannot be read.
    """
    text = pef.manifest.metadata.get(KEY)
    if text is None:
        return {}
    try:
        return {name: GraphRecord(**record) for name, record in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        # No JSON, fields of another version, or something else in place of a mapping.
        raise PefFormatError(
            f"{pef.path.name}: what was compiled cannot be read ({error}); compile it again"
        ) from None


def read_optimizers(manifest: Manifest) -> tuple[OptimizerRecord, ...]:
    """Return the optimizers that a PEF was compiled with.

    Args:
        manifest: The manifest of any PEF.

    Raises:
        PefFormatError: Their records cannot be read.
    """
    graphs = json.loads(manifest.metadata.get(KEY, "{}")).values()
    return tuple(from_json(one) for graph in graphs for one in graph.get("optimizers", ()))


def stored_fingerprint(record: GraphRecord) -> Fingerprint:
    """Return the fingerprint of the program that was compiled."""
    return Fingerprint.parse(record.fingerprint)


def onnx_record(model: object) -> dict[str, Any] | None:
    """Return what a PEF says of how a module was made of an ONNX model.

    Args:
        model: What was compiled.

    Returns:
        Names of the trained weights, and the losses that were attached; None for a module that was
        not made of an ONNX model.
    """
    if not isinstance(model, OnnxModule):
        return None
    losses = [asdict(loss) for loss in model.losses]
    return {"weights": list(model.trained_names), "losses": losses}
