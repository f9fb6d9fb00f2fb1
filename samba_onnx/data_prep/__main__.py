"""``python -m samba_onnx.data_prep``: the same as ``samba-port data-prep``."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    # By name, as a user would: this room stands below the command line, and does not import it.
    sys.argv[1:1] = ["data-prep"]
    runpy.run_module("samba_onnx.cli", run_name="__main__", alter_sys=False)
