"""``sambaflow`` as a child of a SambaFlow program finds it first: it installs what takes its place."""

import importlib
import sys
from pathlib import Path

# A checkout from which the parent was started is not on the path of its children.
sys.path.append(str(Path(__file__).resolve().parents[4]))

from samba_onnx.sambaflow.console import show_messages
from samba_onnx.sambaflow.finder import install

install(replace=True, children=True)
show_messages()

# The import system returns what is in sys.modules when this file is done.
importlib.import_module("sambaflow")
