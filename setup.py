"""The step of a build that pyproject.toml cannot state: stubs of SambaFlow's modules, for editors."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))  # builds are isolated: the checkout is on no path

from samba_onnx.sambaflow.stubs import write_stubs  # noqa: E402  found by the line above


class BuildWithStubs(build_py):
    """Builds the package, with one stub for each module that the table makes."""

    def run(self) -> None:
        """Copy what is a file and write what is none."""
        super().run()
        # An editable build is the checkout itself.
        write_stubs((ROOT if self.editable_mode else Path(self.build_lib)) / "samba_onnx")


setup(cmdclass={"build_py": BuildWithStubs})
