"""What pyproject.toml cannot say: every folder of the package is installed, and two of them lie elsewhere."""

from setuptools import find_packages, setup

ROOMS = {"samba_onnx.passes": "passes", "samba_onnx.runtime": "runtime"}
"""Folders at the top of the checkout that are rooms of the package; links stand for them inside."""


def packages() -> list[str]:
    """Return the names of all folders that are installed, so that a new one need not be listed."""
    # Through the links setuptools would find the rooms twice, and in an archive not at all.
    linked = [pattern for room in ROOMS for pattern in (room, f"{room}.*")]
    inside = find_packages(include=["samba_onnx", "samba_onnx.*"], exclude=linked)
    rooms = [f"{room}.{name}" for room, place in ROOMS.items() for name in find_packages(place)]
    return [*inside, *ROOMS, *rooms]


if __name__ == "__main__":
    setup(packages=packages())
