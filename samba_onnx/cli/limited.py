"""``python -m samba_onnx.cli.limited PARENT BYTES SECONDS ...``: ``samba-port ...`` within limits.

Limits are set by the process itself, before it imports anything native: between a fork and the start of
a program, nothing of Python's own may run.
"""

from __future__ import annotations

import sys

from samba_onnx.cli import main
from samba_onnx.safety.system import die_with, do_not_note, limit_process


def limited_main() -> int:
    """Run ``samba-port`` with the arguments that follow the limits.

    The first three are the process that started this one, with which it ends; the bytes of private
    memory that it may take, 0 for any number; and the seconds of processor time.

    Returns:
        The exit status.
    """
    parent, memory_bytes, cpu_seconds = map(int, sys.argv[1:4])
    # Whoever started this has noted once, for all, which protections are missing.
    do_not_note()
    limit_process(memory_bytes or None, cpu_seconds)
    die_with(parent)
    sys.argv[1:4] = []
    return main()


if __name__ == "__main__":
    sys.exit(limited_main())
