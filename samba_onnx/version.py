"""The version of this package, and whether what it needs is new enough."""

__version__ = "0.1.0"


def installed_version(package: str) -> str:
    """Return the version of an installed package; empty where it is not installed."""
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def outdated() -> tuple[str, ...]:
    """Return the installed packages that are too old.

    Returns:
        Sentences such as ``onnx 1.16.0 is installed, 1.17 or newer is needed``.
    """
    import re

    texts = []
    for requirement in _requirements():
        match = re.match(r"([A-Za-z0-9_.-]+)>=([0-9.]+)$", requirement)  # no extras, no markers
        if match is None:
            continue
        name, needed = match.groups()
        version = installed_version(name)
        if version and _release(version) < _release(needed):
            texts.append(f"{name} {version} is installed, {needed} or newer is needed")
    return tuple(texts)


def _requirements() -> list[str]:
    """Return what this package requires: as it was installed, or as the checkout states it."""
    import importlib.metadata
    import tomllib
    from pathlib import Path

    try:
        return importlib.metadata.requires("samba-onnx") or []
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        text = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
        return list(tomllib.loads(text)["project"]["dependencies"])
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return []


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, without zeros at the end."""
    import re

    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
