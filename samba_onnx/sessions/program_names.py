"""What a PEF calls its weights, scalars and sections."""

from __future__ import annotations

from samba_onnx.compiling.torch.session_records import read_optimizers
from samba_onnx.facts.names import SEPARATOR
from samba_onnx.optim.argins import hyperparameter_names
from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.sessions.ordered_set import OrderedSet


def weight_names(manifest: Manifest) -> list[str]:
    """Return the names of all weights.

    Args:
        manifest: A PEF's manifest.
    """
    # What an optimizer writes is the same weight under another name.
    updates = {name for stage in manifest.stages().values() for name in stage.outputs}
    weights = [symbol.name for symbol in manifest.symbols if symbol.kind is SymbolKind.WEIGHT]
    return [name for name in weights if name not in updates]


def argin_names(manifest: Manifest) -> OrderedSet[str]:
    """Return the names of the scalars that a run may be given: keys of ``hyperparam_dict``.

    Args:
        manifest: A PEF's manifest.
    """
    argins = [argin.name for argin in manifest.argins]
    names: list[str] = []
    for record in read_optimizers(manifest):
        # What the optimizer's sections read is derived from these.
        names += hyperparameter_names(record)
        # They begin with the name of their optimizer; its keys stand for all of them.
        argins = [name for name in argins if not name.startswith(f"{record.name}{SEPARATOR}")]
    return OrderedSet([*names, *argins])


def argin_names_ending(manifest: Manifest, ending: str) -> list[str]:
    """Return the names of the scalars of one kind, as the rates of dropouts.

    Args:
        manifest: A PEF's manifest.
        ending: How names of that kind end.
    """
    return [name for name in argin_names(manifest) if name.endswith(ending)]


def section_types(manifest: Manifest) -> set[str]:
    """Return the types of all sections and fallbacks.

    Args:
        manifest: A PEF's manifest.
    """
    return {stage.type.value for stage in manifest.stages().values()}


def section_ids(manifest: Manifest) -> list[int]:
    """Return the ids of sections and fallbacks in the order of the schedule, each once.

    Args:
        manifest: A PEF's manifest.
    """
    calls = [call for graph in manifest.graphs for call in graph.calls]
    return list(dict.fromkeys(call.stage for call in calls))
