"""SambaFlow under its own name: programs that import ``sambaflow`` run as they are.

``install()`` makes ``import sambaflow`` work in this process::

    import samba_onnx.sambaflow

    samba_onnx.sambaflow.install()
    import sambaflow.samba as samba

``python -m samba_onnx.sambaflow program.py ARGUMENTS`` and ``samba-port exec program.py ARGUMENTS``
do so, and run a program. Nothing that is called ``sambaflow`` is put into site-packages.

This package is what ``sambaflow`` names then. The modules below it that carry SambaFlow's names are
rows of the table in ``samba_onnx/facts/sambaflow_names.py``: ``module_rows.py`` makes each of its row when
it is imported. What samba-onnx itself has to write for one of them is a file here by its last name.
"""

from typing import Final, Never

from samba_onnx.sambaflow.finder import install
from samba_onnx.sambaflow.module_rows import absent

__all__ = ["__version__", "install", "is_demo"]

__version__: Final = "1.19.0"
"""The release of SambaFlow whose documentation the modules follow."""

is_demo: Final = False
"""Whether this is a demonstration of SambaFlow, which leaves parts of it out."""


def __getattr__(name: str) -> Never:
    """Say of a name that is not here what to do without it."""
    raise absent("sambaflow", name)
