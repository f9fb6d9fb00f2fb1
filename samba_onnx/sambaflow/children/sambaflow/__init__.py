"""``sambaflow`` as a child of a SambaFlow program finds it first: it installs what takes its place."""

import importlib
import sys
from pathlib import Path

if __name__ == "sambaflow":  # and no tool imports it as a file of samba-onnx
    # A checkout from which the parent was started is not on the path of its children.
    sys.path.append(str(Path(__file__).resolve().parents[4]))
    importlib.import_module("samba_onnx.sambaflow.console").show_messages()
    importlib.import_module("samba_onnx.sambaflow.finder").install(replace=True, children=True)
    # The import system returns what is in sys.modules when this file is done.
    importlib.import_module("sambaflow")
