"""Outputs in dataclasses: their names, and what is left of values that are no tensors."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from transformers.modeling_outputs import CausalLMOutputWithPast

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.outputs import field_names, plain_outputs


@dataclass
class Inner:
    """A dataclass in another one."""

    left: Any
    right: Any


ONE = torch.ones(1)


def plain(returned: Any) -> Any:
    """Return the outputs of a module without inputs."""
    return plain_outputs(nn.Identity(), returned, (), {})


def names(returned: Any) -> list[str]:
    """Return what the flat outputs are called."""
    leaves, spec = pytree.tree_flatten(plain(returned))
    return field_names(spec, len(leaves))


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (ONE, [""]),
        ((ONE, ONE), ["", ""]),
        ({"a": ONE}, [""]),
        (Inner(ONE, ONE), ["left", "right"]),
        (Inner([ONE, ONE], {"a": ONE}), ["left__0", "left__1", "right__a"]),
        (Inner(ONE, Inner(ONE, None)), ["left", "right__left", "right__right"]),
        (CausalLMOutputWithPast(logits=ONE), ["logits"]),
        (CausalLMOutputWithPast(logits=ONE, hidden_states=(ONE,)), ["logits", "hidden_states__0"]),
        # Names of fields do not reach out of the containers around them.
        ((Inner(ONE, ONE), ONE), ["", "", ""]),
    ],
)
def test_outputs_are_called_by_their_fields(returned: Any, expected: list[str]) -> None:
    assert names(returned) == expected


class Answer(dict[str, Any]):
    """A mapping of a user's own."""


@pytest.mark.parametrize("kind", [Answer, UserDict, MappingProxyType])
def test_mappings_that_torch_does_not_know_are_dicts(kind: Any) -> None:
    assert plain([kind({"a": ONE, 2: Inner(ONE, ONE)})]) == [
        {"a": ONE, 2: {"left": ONE, "right": ONE}}
    ]


def test_tensors_stay_and_what_has_none_goes() -> None:
    result = plain(Inner(ONE, torch.float32))
    assert result["left"] is ONE
    assert result["right"] is None
    assert plain(torch.Size([2])) == (2,)


def test_an_object_that_may_have_tensors_is_refused() -> None:
    with pytest.raises(ModelError, match="Identity returns an object of class object"):
        plain([object()])


def test_a_container_of_the_users_own_needs_no_names() -> None:
    class Pair:
        def __init__(self, left: Any, right: Any) -> None:
            self.left, self.right = left, right

    pytree.register_pytree_node(
        Pair, lambda pair: ([pair.left, pair.right], None), lambda parts, _: Pair(*parts)
    )
    assert names(Pair(ONE, ONE)) == ["", ""]
    assert names((Pair(ONE, ONE), ONE)) == ["", "", ""]
