"""Notes that travel with gradients: numbers by which replicas notice together that they would part ways.

Behind the gradients of each bucket lie a few numbers more, which become means like them. Each is 0 or 1
on every replica, so that a mean between says that replicas differ, and all of them read it, before any
makes a step. The first one says whether the host wrote weights since the last reduction; the others are
bits of a digest of what optimizers multiply by, as the learning rate: in the run that reduces, and in earlier
ones that reduced nothing, as those of ``OPT`` alone, and so told nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Final

import numpy as np

from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.reducing import GradientReducer
from samba_onnx.runtime.reduction_plans import READERS
from samba_onnx.runtime.registers import Registers

# Few, as they travel with every bucket of every step; one difference in 65,536 is not noticed.
_DIGEST_BYTES: Final = 2
NOTE_NUMBERS: Final = 1 + 8 * _DIGEST_BYTES
"""How many numbers travel with a bucket."""
_ALIKE: Final = frozenset({SymbolKind.WEIGHT, SymbolKind.OPTIMIZER_STATE})
_NEARLY_ALL: Final = 0.999
"""More than any share of fewer than a thousand replicas but all; the mean of ones may be a rounding less."""


class ReplicaNotes:
    """What one device tells other replicas of itself, and hears of them."""

    def __init__(self, manifest: Manifest, memory: DeviceMemory, registers: Registers) -> None:
        """Begin with a device that is like all others.

        Args:
            manifest: Says what replicas have alike.
            memory: The device's memory.
            registers: The argins of the device.
        """
        self.may_differ = False
        """Whether something wrote weights or states of optimizers, since replicas last reduced."""
        self._untold = b""
        """A digest of the argins of all runs that updated weights and told nobody."""
        self._memory = memory
        self._registers = registers.items()
        residents, stages = manifest.residents(), manifest.stages()
        self._equal = frozenset(
            symbol.name
            for symbol in manifest.symbols
            if symbol.kind in _ALIKE and symbol.name in residents
        )
        self._argins = sorted(
            argin.name
            for argin in manifest.argins
            if any(stages[reader].type in READERS for reader in argin.stages)
        )

    def concerns(self, names: Collection[str]) -> bool:
        """Return whether replicas must have one of some symbols alike.

        Args:
            names: Names of the symbols.
        """
        return not self._equal.isdisjoint(names)

    def forget(self) -> None:
        """Begin anew: the device is like all others."""
        self.may_differ, self._untold = False, b""

    def stepped_untold(self) -> None:
        """Note that a run updated weights by the argins of now, of which it told no other replica."""
        self._untold = self._argins_digest(hashlib.blake2b())

    def write(self, place: Array) -> None:
        """Put the notes of this device where they travel.

        Args:
            place: ``NOTE_NUMBERS`` numbers of a floating-point type.
        """
        digest = self._argins_digest(hashlib.blake2b(digest_size=_DIGEST_BYTES))
        place[0] = self.may_differ
        place[1:] = np.unpackbits(np.frombuffer(digest, np.uint8))

    def read(self, place: Array, reducer: GradientReducer) -> None:
        """Look whether all replicas may go on.

        Args:
            place: The means of all replicas' notes, the same on all of them.
            reducer: Knows the others.

        Raises:
            UsageError: Some were given weights and others not, or other ones; or optimizers are to
                step with different argins, or did so before.
        """
        shares = place.astype(np.float64)
        stepped = bool(np.any((shares[1:] > 0) & (shares[1:] < _NEARLY_ALL)))
        if stepped:
            self._refuse_argins(reducer)  # those of now
        if shares[0] <= 0 and not stepped:
            return
        if 0 < shares[0] < _NEARLY_ALL:
            who = "the program wrote weights to the devices of some replicas, and not of others"
        # All were written to, maybe with the same values, as from one checkpoint.
        elif reducer.agree(self._weights_digest()):
            self.forget()
            return
        elif stepped:
            who = "optimizers stepped with different hyperparameters in a run that reduced no gradients"
        else:
            who = "the program wrote different weights to the devices of replicas"
        raise UsageError(
            f"{who}, so that they are no replicas any more: let all of them call to_rdu, "
            "load_sharded_checkpoint and their like, with the same values (a step with gradients of "
            "this replica alone writes weights, too)"
        )

    def _refuse_argins(self, reducer: GradientReducer) -> None:
        # All replicas are here, and ask the same.
        for name in self._argins:
            if not reducer.agree(self._argin(name)):
                raise UsageError(
                    f"hyperparameter {name!r} is {self._registers[name].host} on this replica, and "
                    "something else on others, so that optimizers would make other steps: give all "
                    "of them the same hyperparam_dict"
                )

    def _argins_digest(self, digest: hashlib.blake2b) -> bytes:
        digest.update(self._untold)
        for name in self._argins:
            digest.update(self._argin(name))
        return digest.digest()

    def _argin(self, name: str) -> bytes:
        return self._registers[name].host.tobytes()

    def _weights_digest(self) -> bytes:
        """Return what only equal weights and states of optimizers have."""
        digest, places = hashlib.blake2b(), dict[str, str]()
        for name in sorted(self._equal):
            # Symbols of one region are the same bytes, and are looked at once.
            places.setdefault(self._memory.region(name), name)
        for name in places.values():
            items = np.ascontiguousarray(self._memory.whole(name).items)
            digest.update(items.view(np.uint8).data)
        return digest.digest()
