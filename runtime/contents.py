"""Values that do not come from a run: from the PEF, and from whoever loads residents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from samba_onnx.errors import ScheduleError, UsageError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.pef.fixed_inputs import fixed_arrays
from samba_onnx.pef.manifest import Cause, Direction, Symbol
from samba_onnx.pef.reader import Pef
from samba_onnx.program.kinds import LOADED_KINDS, SymbolKind
from samba_onnx.runtime.elements import Array, moved_bytes
from samba_onnx.runtime.engine.assembly import initializer, initializer_bytes
from samba_onnx.runtime.exchanges import Rdu
from samba_onnx.runtime.inputs import InputSpec, own_copy, without_fixed
from samba_onnx.runtime.registers import Registers
from samba_onnx.runtime.residency import Residency
from samba_onnx.runtime.shards import shard_of


class Contents:
    """What a device is filled with before its first run."""

    def __init__(self, pef: Pef, values: Residency, rdu: Rdu | None = None) -> None:
        manifest = pef.manifest
        self._pef, self._number = pef, 0 if rdu is None else rdu.number
        self._values = values
        self._symbols = {symbol.name: symbol for symbol in manifest.symbols}
        self._fixed = fixed_arrays(manifest.fixed_inputs)
        self.residents = manifest.residents()
        """Names of symbols that stay in device memory between runs."""
        read = {name for fallback in manifest.fallbacks for name in fallback.inputs}
        # Fallbacks read these on the host. No run changes them, so that one copy made now spares
        # a download in every run.
        self._mirrored = manifest.fixed_residents() & read
        planned = [move.symbol for graph in manifest.graphs for move in graph.load_transfers]
        self.loaded: dict[str, int] = {}
        """Bytes of the initializers that sections have inside, by name; engines keep them."""
        # Backwards, so that the first place counts of a symbol that several graphs load.
        self._order = {name: place for place, name in reversed(list(enumerate(planned)))}

    def symbol(self, name: str) -> Symbol:
        """Return a symbol.

        Raises:
            UsageError: There is no such symbol.
        """
        symbol = self._symbols.get(name)
        if symbol is None:
            raise UsageError(f"symbol {name!r} does not exist in {self._pef.path.name}")
        return symbol

    def load_stored(self, registers: Registers) -> None:
        """Copy what the PEF holds to the device, and enter it and initializers in the ledger.

        Args:
            registers: Argins, which have values, too; these are part of the program, and no transfer.
        """
        manifest = self._pef.manifest
        inputs = {name for graph in manifest.graphs for name in graph.inputs}
        sizes = self._initializers()
        self.loaded = dict(sizes)
        for section in manifest.sections:
            for name in section.inputs:
                # An input that has a default in the PEF is copied by the first run that is not
                # given it, which ``with_defaults`` sees to, and not at load.
                if name not in inputs and self._symbols[name].stored is not None:
                    sizes[name] = self._values.load(name, self._own(name))
        for name in self._mirrored:
            if self._symbols[name].stored is not None:
                sizes[name] = self._values.load(name, self._own(name))
                self._values.keep_on_host(name, self._own(name))
        for name in self.in_order(name for name in sizes if not self._symbols[name].baked):
            constant = self._symbols[name].kind is SymbolKind.CONSTANT
            cause = Cause.CONSTANT if constant else Cause.WEIGHT
            self._values.enter(name, sizes[name], Direction.HOST_TO_RDU, cause, None)
        self._note_argins(registers)

    def _own(self, name: str) -> Array:
        """Return what this RDU holds of a value that the PEF has in whole: the value, or its shard."""
        return shard_of(self._pef.weight(name), self._symbols[name].sharded, self._number)

    def _initializers(self) -> dict[str, int]:
        """Bytes that sections have inside, by name: in the file of weights, or in their models.

        Engines map or read them when they prepare the sections; on the RDU they are copied now.
        """
        weights = {name for section in self._pef.manifest.sections for name in section.weights}
        stored = {name for name in weights if self._symbols[name].stored is not None}
        # Only these are parsed: the file of weights says how large all others are.
        inside = {
            section.id
            for section in self._pef.manifest.sections
            if not stored.issuperset(section.weights)
        }
        sizes = {name: self._pef.content(name).nbytes for name in stored}
        for stage in inside:
            sizes |= initializer_bytes(self._pef, stage)
        # Initializers that the manifest does not list are part of the program, and no transfer.
        return {name: size for name, size in sizes.items() if name in weights}

    def mirror(self, name: str, value: Array) -> None:
        """Keep a copy of a resident for the fallbacks that read it, if nothing else changes it.

        Args:
            name: Name of a symbol that was just written on the device.
            value: Its value; may share the user's memory.
        """
        if name in self._mirrored:
            self._values.keep_on_host(name, own_copy(value))

    def _note_argins(self, registers: Registers) -> None:
        for name in registers.items():
            if self._symbols[name].region:
                self._values.written_on_device((name,))
        # After all of the above, which drops what the host knows of each symbol that it places.
        for name, register in registers.items().items():
            self._values.keep_on_host(name, register.host)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return names in the order in which the plan loads them.

        Loading happens at one moment, so that the plan's order is as good as any.
        """
        return sorted(names, key=lambda name: (self._order.get(name, len(self._order)), name))

    def loadable(self, name: str) -> InputSpec:
        """Return what a resident must be loaded with.

        Raises:
            UsageError: There is no such resident, or it is computed.
        """
        symbol = self.symbol(name)
        if name not in self.residents or symbol.kind not in LOADED_KINDS:
            raise UsageError(
                f"symbol {name!r} is no weight, buffer or optimizer state that lives in device "
                "memory; give inputs to run(), and other values to write()"
            )
        return InputSpec(symbol)

    def refuse_unloaded(self, symbol: Symbol) -> None:
        """Refuse to read a resident that has no value.

        Raises:
            ScheduleError: It is one.
        """
        if symbol.name in self.residents and symbol.kind in LOADED_KINDS:
            raise ScheduleError(
                f"{symbol.kind.words} {symbol.name!r} has no value: give it to load() first"
            )

    def without_fixed(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Drop inputs that are constants.

        Args:
            inputs: Inputs that the host gives to a run, by name.

        Raises:
            InputError: One was fixed as a constant of another value.
        """
        return without_fixed(self._fixed, inputs)

    def with_defaults(
        self, specs: Mapping[str, InputSpec], inputs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Add the model's own defaults for inputs that nobody ever gave.

        Args:
            specs: What a graph's inputs must look like, in the graph's order.
            inputs: Checked inputs that the host gives to this run, by name, in that order.

        Returns:
            All of them, in that order.
        """
        missing = [name for name in specs if name not in inputs and not self._values.has(name)]
        # From the second run on the value of before is there, and no default is copied again.
        defaults = {name: self._pef.weight(name) for name in missing if self._symbols[name].stored}
        if not defaults:
            return inputs
        return {
            name: inputs[name] if name in inputs else spec.check(defaults[name])
            for name, spec in specs.items()
            if name in inputs or name in defaults
        }

    def read_constant(self, name: str) -> Array:
        """Copy what sections have inside from the device; an ``explicit`` transfer.

        Args:
            name: Name of a weight or constant.

        Returns:
            A fresh host array.
        """
        array = self.constant(name)
        element = tensor_element(self._symbols[name].type)
        size = array.nbytes if element is None else moved_bytes(array, element)
        self._values.enter(name, size, Direction.RDU_TO_HOST, Cause.EXPLICIT, None)
        return array

    def constant(self, name: str) -> Array:
        """Return a fresh copy of what the PEF holds of a symbol."""
        if self._symbols[name].stored is not None:
            return self._pef.weight(name).copy()
        content: Array = initializer(self._pef, name)
        return content
