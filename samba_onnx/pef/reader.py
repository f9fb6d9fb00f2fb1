"""Open a PEF: nothing of it is believed before it has been checked, and no weight is copied."""

from __future__ import annotations

import concurrent.futures
import contextlib
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from samba_onnx.errors import PefChecksumError, PefError, PefFormatError, UsageError
from samba_onnx.pef.archive import MemberSlot
from samba_onnx.pef.codec import decode_manifest
from samba_onnx.pef.consistency import check_manifest, weights_layout
from samba_onnx.pef.digests import check_content
from samba_onnx.pef.envelope import read_envelope
from samba_onnx.pef.layout import REFERENCE_MEMBER, WEIGHTS_MEMBER, check_members
from samba_onnx.pef.manifest import Manifest, Member, Symbol
from samba_onnx.pef.reference import check_reference
from samba_onnx.pef.stage_reading import with_stages
from samba_onnx.pef.weights import StoredTensor, check_layout, tensor_array
from samba_onnx.safety.files import open_regular, printable
from samba_onnx.safety.notebook import notebook_table

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["Pef", "load_pef"]

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""

EAGER_LIMIT = 64 << 20
"""Weights up to this size are hashed when the PEF is loaded, in about 50 ms; larger ones on
request or in the background."""


def load_pef(path: str | os.PathLike[str], *, verify: bool = False) -> Pef:
    """Open a PEF and check it.

    Always checked: the archive's form, the seal, the manifest and what its records say about each
    other, the SHA-256 of every member except large weights, and the header of the weights. The
    content of weights beyond 64 MiB and the agreement of the stages' ONNX models with the
    manifest are checked on use or by ``verify``, because they take longer than looking into a
    PEF should.

    Args:
        path: A regular file.
        verify: Check everything now.

    Returns:
        The open PEF; close it or use it as a context manager.

    Raises:
        PefFormatError: It is not a whole, well-formed PEF.
        PefChecksumError: A byte differs from what was written.
        PefVersionError: A newer samba-onnx wrote it.
    """
    name = printable(os.fspath(path))
    if os.path.islink(path):
        target = printable(os.path.realpath(path))
        raise PefFormatError(
            f"{name}: is a symbolic link; name the PEF itself: {target}", path=path
        )
    file = open_regular(path, what="PEF", error=PefFormatError)
    try:
        pef = Pef(Path(os.path.abspath(path)), file)
    except BaseException:
        file.close()
        raise
    try:
        if verify:
            pef.verify()
    except BaseException:
        pef.close()
        raise
    return pef


@contextlib.contextmanager
def _naming(path: Path, name: str) -> Iterator[None]:
    """Put the file's name in front of what is wrong with it, and turn I/O errors into ours."""
    try:
        yield
    except PefError as error:
        # The cause tells what is no model from what contradicts the manifest.
        raise error.within(name, path=path) from error.__cause__
    except OSError as error:
        raise PefFormatError(f"{name}: cannot be read: {error.strerror}", path=path) from None


class Pef:
    """An open PEF, mapped into memory.

    Arrays and views taken from it stay valid while they are referenced, even after ``close``.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        """Check an open file and map it; use ``load_pef``."""
        self.path = path
        self._name = printable(path)
        self._file = file
        with _naming(self.path, self._name):
            self._open()

    def _open(self) -> None:
        file = self._file
        status = os.fstat(file.fileno())
        self._identity = _identity(status)
        envelope = read_envelope(file.fileno(), status.st_size)
        self.manifest: Manifest = decode_manifest(envelope.manifest)
        check_manifest(self.manifest)
        self._members = {member.name: member for member in self.manifest.members}
        self._slots = {slot.name: slot for slot in envelope.slots}
        self._crcs = {s.name: c for s, c in zip(envelope.slots, envelope.crcs, strict=True)}
        # But for the last slot, which is the manifest's own.
        check_members(self.manifest, [(slot.name, slot.bytes) for slot in envelope.slots[:-1]])
        self._view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self.manifest = with_stages(self.manifest, self._view, self._slots)
        self._symbols = {symbol.name: symbol for symbol in self.manifest.symbols}
        self._stages = self.manifest.stages()
        self._stop = threading.Event()
        self._verification: concurrent.futures.Future[None] | None = None
        self._process = os.getpid()
        check_layout(weights_layout(self.manifest), self.member(WEIGHTS_MEMBER))
        for member in self.manifest.members:
            if member.name != WEIGHTS_MEMBER or member.bytes <= EAGER_LIMIT:
                self._check(member, None)
        self._reference = check_reference(self.manifest, self._optional(REFERENCE_MEMBER))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop a running verification and release the file."""
        self._stop.set()
        self._forget_parent()
        if self._verification is not None:
            concurrent.futures.wait([self._verification])
        self._file.close()

    def __repr__(self) -> str:
        return f"Pef({os.fspath(self.path)!r})"

    def _repr_html_(self) -> str:
        """Return the members as a table for a notebook."""
        rows = [(member.name, member.bytes) for member in self.manifest.members]
        return notebook_table(f"{self!r}: {self.manifest!r}", rows, ("member", "bytes"))

    def member(self, name: str) -> memoryview:
        """Return a member's content, mapped and read-only.

        Args:
            name: Such as ``weights.safetensors``.

        Raises:
            UsageError: There is no such member.
        """
        slot = self._slot(name)
        return self._view[slot.offset : slot.end]

    def member_offset(self, name: str) -> int:
        """Return the absolute offset of a member's content in the file.

        Args:
            name: Such as ``weights.safetensors``.

        Raises:
            UsageError: There is no such member.
        """
        return self._slot(name).offset

    def _slot(self, name: str) -> MemberSlot:
        slot = self._slots.get(name)
        if slot is None:
            raise UsageError(f"{self._name}: there is no member {printable(name)}")
        return slot

    def _optional(self, name: str) -> memoryview | None:
        return self.member(name) if name in self._slots else None

    def symbol(self, name: str) -> Symbol:
        """Return a symbol's record.

        Raises:
            UsageError: There is no such symbol.
        """
        symbol = self._symbols.get(name)
        if symbol is None:
            raise UsageError(f"{self._name}: there is no symbol {printable(name)}")
        return symbol

    def weight(self, name: str) -> np.ndarray:
        """Return a stored weight or constant.

        Args:
            name: Name of a symbol that has ``stored`` set.

        Returns:
            A read-only view over the mapped file, with dtypes of ``ml_dtypes`` where numpy has
            none; elements of 2 or 4 bits are unpacked into a copy.

        Raises:
            UsageError: There is no such symbol, or it is not stored in ``weights.safetensors``.
        """
        symbol = self.symbol(name)
        if symbol.stored is None:
            raise UsageError(f"{self._name}: {printable(name)} has no content of its own")
        shape = tuple(d for d in symbol.whole_shape or () if isinstance(d, int))
        tensor = StoredTensor(name, symbol.type, shape, symbol.stored.offset, symbol.stored.bytes)
        return tensor_array(self.member(WEIGHTS_MEMBER), tensor)

    def content(self, name: str) -> memoryview:
        """Return the bytes of a stored weight or constant as the file has them.

        Args:
            name: Name of a symbol that has ``stored`` set.

        Raises:
            UsageError: There is no such symbol, or it is not stored in ``weights.safetensors``.
        """
        stored = self.symbol(name).stored
        if stored is None:
            raise UsageError(f"{self._name}: {printable(name)} has no content of its own")
        return self.member(WEIGHTS_MEMBER)[stored.offset : stored.offset + stored.bytes]

    def reference_inputs(self, run: int = 0) -> dict[str, np.ndarray]:
        """Return the reference sample's inputs by name; empty without a sample.

        Args:
            run: Which of the sample's runs.
        """
        sample = self.manifest.reference
        return self._sample(run, "input", sample.inputs if sample else ())

    def reference_outputs(self, run: int = 0) -> dict[str, np.ndarray]:
        """Return the outputs that the original model gave for the sample; empty without one.

        Args:
            run: Which of the sample's runs.
        """
        sample = self.manifest.reference
        return self._sample(run, "output", sample.outputs if sample else ())

    def reference_wide(self, run: int = 0) -> dict[str, np.ndarray]:
        """Return what the original model gave for outputs of 16 bits in float32, where it was kept.

        Args:
            run: Which of the sample's runs.
        """
        sample = self.manifest.reference
        return self._sample(run, "wide", sample.wide if sample else ())

    def _sample(self, run: int, part: str, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        content = self._optional(REFERENCE_MEMBER)
        if content is None:
            return {}
        tensors = [self._reference[f"{run}.{part}.{place}"] for place in range(len(names))]
        return {n: tensor_array(content, t) for n, t in zip(names, tensors, strict=True)}

    def stage_model(self, stage_id: int) -> onnx.ModelProto:
        """Return the ONNX model of a section or fallback, checked against the manifest.

        Large initializers refer to ``weights.safetensors`` with offsets inside that member.

        Args:
            stage_id: ``Stage.id``.

        Raises:
            UsageError: There is no such stage.
            PefFormatError: The model cannot be parsed, breaks a rule of ONNX, or differs from
                what the manifest says about it.
        """
        from samba_onnx.pef.stage_checks import parse_stage

        stage = self._stages.get(stage_id)
        if stage is None:
            raise UsageError(f"{self._name}: there is no stage {stage_id}")
        with _naming(self.path, self._name):
            weights_bytes = self._members[WEIGHTS_MEMBER].bytes
            return parse_stage(
                bytes(self.member(stage.member)), stage, self._symbols, weights_bytes
            )

    def verify(self, progress: Progress | None = None) -> None:
        """Check everything: every checksum, and every stage's model against the manifest.

        Args:
            progress: Told how many bytes of how many are done.

        Raises:
            PefChecksumError: A byte differs from what was written.
            PefFormatError: A stage's model contradicts the manifest, or the file cannot be read.
        """
        total = sum(member.bytes for member in self.manifest.members)
        done = 0
        for member in self.manifest.members:
            with _naming(self.path, self._name):
                self._check(member, _shifted(progress, done, total))
            done += member.bytes
        for stage_id in self._stages:
            self.stage_model(stage_id)

    def verify_weights(self, progress: Progress | None = None) -> None:
        """Check the checksum of the weights.

        Args:
            progress: Told how many bytes of how many are done.

        Raises:
            PefChecksumError: A byte differs from what was written.
            PefFormatError: The file cannot be read.
        """
        with _naming(self.path, self._name):
            self._check(self._members[WEIGHTS_MEMBER], progress, fully=False)

    def start_verification(self) -> concurrent.futures.Future[None]:
        """Check the weights' checksum in the background.

        Whoever computes with the weights meanwhile asks the future for its result before the
        first answer leaves. Hashing releases Python's lock. A second call returns the same future.

        Returns:
            A future whose ``result()`` is None, or raises what ``verify_weights`` raises; it
            raises ``CancelledError`` when the PEF is closed first.
        """
        self._forget_parent()
        if self._verification is None:
            future: concurrent.futures.Future[None] = concurrent.futures.Future()
            self._verification = future
            if self._members[WEIGHTS_MEMBER].bytes <= EAGER_LIMIT:
                future.set_result(None)
            else:
                name = f"verify {self._name}"
                threading.Thread(
                    target=self._fulfil, args=(future,), name=name, daemon=True
                ).start()
        return self._verification

    def _forget_parent(self) -> None:
        """Begin anew in a forked process: the thread that verifies is in the parent only."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._verification = None

    def _fulfil(self, future: concurrent.futures.Future[None]) -> None:
        try:
            self.verify_weights()
        except concurrent.futures.CancelledError:
            future.cancel()
            future.set_running_or_notify_cancel()
        except BaseException as error:  # handed to whoever asks for the result
            future.set_exception(error)
        else:
            future.set_result(None)

    def ensure_unchanged(self) -> None:
        """Check that the path still leads to the very file that was opened and checked.

        For whoever lets onnxruntime open the file by its path a second time.

        Raises:
            PefChecksumError: The file was replaced or written to since it was loaded.
        """
        try:
            same = _identity(os.lstat(self.path)) == self._identity
        except OSError:
            same = False
        if not same:
            raise PefChecksumError(f"{self._name}: the file was replaced while it was in use")

    def _check(self, member: Member, progress: Progress | None, *, fully: bool = True) -> None:
        """Check a member's SHA-256, and the CRC that only other programs look at if ``fully``."""
        slot, crc = self._slots[member.name], self._crcs[member.name] if fully else None
        check_content(self._file.fileno(), slot, member.sha256, crc, self._stop, progress)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _shifted(progress: Progress | None, done: int, total: int) -> Progress | None:
    """Return a progress function for one member that counts over all of them."""
    if progress is None:
        return None
    told = progress
    return lambda part, _: told(done + part, total)
