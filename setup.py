"""What pyproject.toml cannot say: which folders are installed, and stubs of SambaFlow's modules for editors."""

import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
ROOMS = {"samba_onnx.passes": "passes", "samba_onnx.runtime": "runtime"}
"""Folders at the top of the checkout that are rooms of the package; links stand for them inside."""


def packages() -> list[str]:
    """Return the names of all folders that are installed, so that a new one need not be listed."""
    # Through the links setuptools would find the rooms twice, and in an archive not at all.
    linked = [pattern for room in ROOMS for pattern in (room, f"{room}.*")]
    inside = find_packages(include=["samba_onnx", "samba_onnx.*"], exclude=linked)
    rooms = [f"{room}.{name}" for room, place in ROOMS.items() for name in find_packages(place)]
    return [*inside, *ROOMS, *rooms]


class BuildWithStubs(build_py):
    """Builds the package, with one stub for each module that the table makes."""

    def run(self) -> None:
        """Copy what is a file and write what is none."""
        super().run()
        sys.path.insert(0, str(ROOT))  # builds are isolated: the checkout is on no path
        from samba_onnx.sambaflow.stubs import write_stubs

        # An editable build is the checkout itself.
        write_stubs((ROOT if self.editable_mode else Path(self.build_lib)) / "samba_onnx")


if __name__ == "__main__":
    setup(packages=packages(), cmdclass={"build_py": BuildWithStubs})
