"""``python -m samba_onnx``: the same as ``samba-port``."""

import sys

from samba_onnx.cli import main

if __name__ == "__main__":
    sys.exit(main())
