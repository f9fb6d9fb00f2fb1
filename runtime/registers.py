"""Argins: scalars of a program that keep their values from run to run.

An argin travels with the command that starts a run, as a register of the device. Setting one copies
no tensor over the link, so that neither plan nor ledger has a transfer for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from samba_onnx.errors import InputError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.pef.manifest import Argin, Manifest, Symbol
from samba_onnx.runtime.elements import INTEGER_KINDS, Array, is_native, to_items
from samba_onnx.runtime.memory import DeviceMemory

_NUMBER_KINDS: Final = INTEGER_KINDS + "fbV"
"""numpy's kinds of numbers that become floating-point ones; V is ml_dtypes' own."""


class Register:
    """The place of one argin, or of several that share a region."""

    def __init__(self, argin: Argin, symbol: Symbol, memory: DeviceMemory) -> None:
        """Give the register its default.

        Args:
            argin: With a scalar type of numbers, as the manifest was checked for.
            symbol: Its symbol.
            memory: Where sections read it.
        """
        element = tensor_element(argin.type)
        assert element is not None, "argins are checked when the PEF is read"
        self.name = argin.name
        self.type = argin.type
        self._element = element
        self._is_float = is_native(element) and element.numpy.kind == "f"
        self._items = memory.tensor(symbol.name).items if symbol.region else None
        self.host: Array = np.zeros((), element.numpy)
        """The value; not to be changed from outside."""
        # A default is stated as a float, which a register of integers refuses from users.
        whole = self.host.dtype.kind in INTEGER_KINDS
        self.set(self.check(int(argin.default) if whole else argin.default))

    def check(self, value: Any) -> Any:
        """Return a value as one that :meth:`set` takes.

        Args:
            value: A number, or an array of one without dimensions.

        Raises:
            InputError: It is neither, or does not fit the argin's type.
        """
        # The usual case, a learning rate in every step: no array is made of it.
        if self._is_float and type(value) is float:
            return value
        try:
            array = np.asarray(value)
        except (TypeError, ValueError) as error:
            raise self._refusal(value) from error
        if array.shape != ():
            raise self._refusal(value)
        if array.dtype == self.host.dtype:
            return array
        return self._converted(array, value)

    def set(self, value: Any) -> None:
        """Change the value, for host and device.

        Args:
            value: From :meth:`check`.
        """
        self.host[...] = value
        if self._items is not None:
            self._items[...] = self.host if self._is_float else to_items(self.host, self._element)

    def _converted(self, array: Array, value: Any) -> Array:
        to = self.host.dtype
        if to.kind in INTEGER_KINDS:
            bounds = np.iinfo(to)
            if array.dtype.kind not in INTEGER_KINDS or not bounds.min <= int(array) <= bounds.max:
                raise self._refusal(value)
        elif array.dtype.kind not in _NUMBER_KINDS:
            raise self._refusal(value)
        with np.errstate(over="ignore"):
            converted: Array = array.astype(to)
        return converted

    def _refusal(self, value: Any) -> InputError:
        shown = repr(value)
        shown = shown if len(shown) <= 40 else f"a value of type {type(value).__name__}"
        return InputError(f"argin {self.name!r} is {shown}, expected one number of {self.type}")


class Registers:
    """All argins of a PEF."""

    def __init__(self, manifest: Manifest, memory: DeviceMemory) -> None:
        """Set every argin to its default."""
        self._latest: Mapping[str, Any] | None = None
        """What :meth:`apply` set, while nothing else was set since."""
        symbols = {symbol.name: symbol for symbol in manifest.symbols}
        places: dict[str, Register] = {}
        self._registers: dict[str, Register] = {}
        for argin in manifest.argins:
            symbol = symbols[argin.name]
            # Argins of one region are one register, under several names. Without a region each has its
            # own; the space keeps its name from being that of a region.
            place = symbol.region or f" {argin.name}"
            if place not in places:
                places[place] = Register(argin, symbol, memory)
            self._registers[argin.name] = places[place]

    def __contains__(self, name: object) -> bool:
        return name in self._registers

    def items(self) -> Mapping[str, Register]:
        """Return the registers by the names of argins."""
        return self._registers

    def split(
        self, inputs: Mapping[str, Any], argins: Mapping[str, Any] | None
    ) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Tell inputs from argins.

        Args:
            inputs: Inputs of a run, among which there may be argins.
            argins: Argins by name.

        Returns:
            The inputs proper, and checked values of argins.

        Raises:
            InputError: An argin does not exist, is given twice, or does not fit.
        """
        numbers = dict(argins) if argins else {}
        if not self._registers.keys().isdisjoint(inputs):
            among = [name for name in inputs if name in self._registers]
            twice = next((name for name in among if name in numbers), None)
            if twice is not None:
                raise InputError(f"argin {twice!r} is given twice: as an input and as an argin")
            numbers |= {name: inputs[name] for name in among}
            inputs = {name: value for name, value in inputs.items() if name not in among}
        return inputs, self.check(numbers)

    def check(self, argins: Mapping[str, Any]) -> dict[str, Any]:
        """Return values as :meth:`set` takes them.

        Args:
            argins: Numbers by the names of argins.

        Raises:
            InputError: An argin does not exist, or a number does not fit.
        """
        return {name: self._known(name).check(value) for name, value in argins.items()}

    def apply(self, argins: Mapping[str, Any]) -> None:
        """Check argins and set them; nothing is done where they are those that were set last.

        Args:
            argins: Numbers by the names of argins, in a mapping that is not changed any more.

        Raises:
            InputError: An argin does not exist, or a number does not fit.
        """
        if argins is not self._latest:
            self.set(self.check(argins))
            self._latest = argins

    def _known(self, name: str) -> Register:
        register = self._registers.get(name)
        if register is None:
            known = ", ".join(map(repr, self._registers)) or "none"
            raise InputError(f"argin {name!r} does not exist; the argins are: {known}")
        return register

    def set(self, values: Mapping[str, Any]) -> None:
        """Change argins; the values are those that :meth:`check` returned."""
        self._latest = None
        for name, value in values.items():
            self._registers[name].set(value)
