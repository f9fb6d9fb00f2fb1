"""What goes to a run and comes from it, as JSON with arrays in a file: between a process and the device of another."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np

from samba_onnx.runtime.elements import Array
from samba_onnx.safety.exchange import read_arrays, write_arrays

__all__ = ["packed", "unpacked"]


def packed(value: Any, file: Path) -> dict[str, Any]:
    """Write the arrays of a value to a file, and return what is left of it, able to be JSON.

    Args:
        value: Arrays, scalars of numpy, numbers, texts and None, in lists, tuples, sets and mappings;
            anything else that numpy makes an array of, as tensors of torch.
        file: Where the arrays go; replaced.
    """
    arrays: dict[str, Array] = {}
    tree = _tree(value, arrays)
    return {"tree": tree, "arrays": write_arrays(file, arrays)}


def unpacked(content: Mapping[str, Any], file: Path) -> Any:
    """Return the value that was packed; tuples and sets are what they were, mappings dicts.

    Args:
        content: From ``packed``.
        file: Where it wrote the arrays.
    """
    return _value(content["tree"], read_arrays(file, content["arrays"]))


def _tree(value: Any, arrays: dict[str, Array]) -> Any:
    # By the very type: numpy's float64 is a float as well, but goes with the arrays, which
    # keep its dtype.
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        # Pairs, as keys in JSON can be nothing but texts.
        return {"items": [[_tree(k, arrays), _tree(v, arrays)] for k, v in value.items()]}
    for kind, name in ((list, "list"), (tuple, "tuple"), (Set, "set")):
        if isinstance(value, kind):
            return {name: [_tree(item, arrays) for item in value]}
    name = str(len(arrays))
    arrays[name] = np.asarray(value)
    return {"array": name}


def _value(tree: Any, arrays: Mapping[str, Array]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "array":
        return arrays[content]
    if kind == "items":
        return {_value(key, arrays): _value(value, arrays) for key, value in content}
    items = [_value(item, arrays) for item in content]
    return {"list": list, "tuple": tuple, "set": frozenset}[kind](items)
