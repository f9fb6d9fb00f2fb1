"""What a program needs in device memory before it runs, from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Manifest, Symbol
from samba_onnx.program.kinds import LOADED_KINDS, SymbolKind

if TYPE_CHECKING:
    from samba_onnx.pef import Pef
    from samba_onnx.pef.manifest import Fallback, Section
    from samba_onnx.runtime.device import Device

_MASTER = "__master"


def missing_weights(manifest: Manifest) -> list[Symbol]:
    """Return weights and buffers that a PEF reads and does not carry.

    Args:
        manifest: The PEF's manifest.
    """
    kinds = (SymbolKind.WEIGHT, SymbolKind.BUFFER)
    return [
        symbol for symbol in _loaded(manifest) if symbol.kind in kinds and symbol.stored is None
    ]


def refuse_missing_weights(pef: Pef, hint: str) -> None:
    """Refuse a PEF that does not carry its weights.

    Args:
        pef: An open PEF.
        hint: What the user can do.

    Raises:
        UsageError: It carries none.
    """
    missing = missing_weights(pef.manifest)
    if missing:
        raise UsageError(
            f"{pef.path} carries no weights ({missing[0].name}, ...), as every PEF of "
            "samba.session.compile or convert --train, whose programs send those of their module; "
            f"{hint}"
        )


def read_residents(pef: Pef, path: str | None) -> dict[str, Any]:
    """Return the values that a PEF has to be loaded with.

    Args:
        pef: An open PEF.
        path: A checkpoint with the values that the PEF does not carry; None when it carries all.

    Returns:
        Arrays by symbol: weights and buffers of the checkpoint; state of optimizers too, where the
        checkpoint has it by the name of its symbol, and else as before the first step.

    Raises:
        UsageError: Weights are missing, or the PEF has none that can be given.
        ModelError: The checkpoint cannot be read.
    """
    symbols = _loaded(pef.manifest)
    if path is None:
        refuse_missing_weights(
            pef,
            "give --weights FILE, the state_dict of that module, or make a PEF that has its weights "
            "with samba-port convert",
        )
        return {}
    weights = [symbol for symbol in symbols if symbol.kind is not SymbolKind.OPTIMIZER_STATE]
    if not weights:
        raise UsageError(f"--weights {path}: {pef.path} has its weights inside its sections")

    from samba_onnx.loading.checkpoints import by_symbol, read_checkpoint, require_all

    content = read_checkpoint(path)
    keys = by_symbol([symbol.name for symbol in weights], content)
    needed = [symbol.name for symbol in weights if symbol.stored is None]
    # Where the PEF carries all of them, a checkpoint replaces all or none.
    require_all(path, needed or [symbol.name for symbol in weights], keys, content)
    values = {name: content[key] for name, key in keys.items()}
    return values | _states(symbols, content, values)


def _loaded(manifest: Manifest) -> list[Symbol]:
    """Symbols that are given values before the first run."""
    names = {move.symbol for graph in manifest.graphs for move in graph.load_transfers}
    names &= manifest.residents()
    return [s for s in manifest.symbols if s.name in names and s.kind in LOADED_KINDS]


def _states(
    symbols: list[Symbol], content: Mapping[str, Any], weights: Mapping[str, Any]
) -> dict[str, Any]:
    """State of the optimizers."""
    import numpy as np

    from samba_onnx.runtime.inputs import InputSpec

    states: dict[str, Any] = {}
    for symbol in symbols:
        if symbol.kind is not SymbolKind.OPTIMIZER_STATE:
            continue
        spec = InputSpec(symbol)
        base = weights.get(symbol.name.removesuffix(_MASTER))
        if symbol.name in content:
            states[symbol.name] = content[symbol.name]
        # The float32 copy begins as the weight itself; all other state as zeros, as in torch.
        elif symbol.name.endswith(_MASTER) and base is not None:
            states[symbol.name] = np.asarray(base, spec.dtype)
        else:
            shape = [size if isinstance(size, int) else 0 for size in symbol.whole_shape or ()]
            states[symbol.name] = np.zeros(shape, spec.dtype)
    return states


def set_gradients(
    device: Device, manifest: Manifest, executed: Sequence[Section | Fallback]
) -> None:
    """Set the gradients that a run reads before it computes them.

    Those that backward sections start from, of losses, become one; those to which backward sections
    add, where no ZEROGRAD section is executed, become zero.

    Args:
        device: On which they are set.
        manifest: The manifest of the PEF that the device has loaded.
        executed: What is run, in the order of the schedule.
    """
    import numpy as np

    from samba_onnx.runtime.inputs import InputSpec

    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    computed = {symbols[n].region for stage in manifest.stages().values() for n in stage.outputs}
    known: set[str] = set()
    for stage in executed:
        written = {symbols[name].region for name in stage.outputs}
        for symbol in map(symbols.__getitem__, stage.inputs):
            if symbol.kind is not SymbolKind.GRADIENT or symbol.region in known:
                continue
            if symbol.region not in computed or symbol.region in written:
                shape = [size if isinstance(size, int) else 0 for size in symbol.whole_shape or ()]
                value = np.full(shape, symbol.region not in computed, InputSpec(symbol).dtype)
                device.write(symbol.name, value)
                known.add(symbol.region)
        known |= written
