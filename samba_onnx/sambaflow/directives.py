"""``sambaflow.samba.directives``: hints for the vendor's compiler on what is traced.

They change no number. What has no effect, the PEF that is compiled next says.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from samba_onnx.sessions import SESSION
from samba_onnx.sessions.fusion import fuse

__all__ = ["op_fusion", "sdpa_directives"]


def op_fusion(*arguments: Any, **hints: Any) -> AbstractContextManager[None]:
    """Compile operators into one section, at ``o1``; at other levels this is a hint.

    A statement where it is given a module, ``op_fusion(module, "Encoder")``; else a context manager
    around the operators.

    Args:
        *arguments: A module and a name, or the name of a function.
        **hints: ``heuristic`` and ``func_name`` name the section; others, as ``heuristic_params`` and
            ``plugins``, are kept without effect.

    Returns:
        A context that marks what is computed inside; behind a module one that does nothing, so that both
        forms may be written.
    """
    return fuse(SESSION.record_hint, arguments, hints)


def sdpa_directives(directives: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Ask for a way to compute attention inside; a hint.

    Args:
        directives: Such as ``sdp_mixed_p`` and ``sdp_block_size``.

    Returns:
        A context that does nothing.
    """
    SESSION.record_hint("sdpa_directives", dict(directives))
    return nullcontext()
