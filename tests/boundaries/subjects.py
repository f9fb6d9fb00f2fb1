"""The architectures that are counted, each as torch's own exporter writes it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import onnx
import torch
from torch import Tensor, nn

from tests.architectures.building import build
from tests.architectures.catalogue import ARCHITECTURES
from tests.wild.subject import quiet

__all__ = ["CAPTURED", "OPSET", "SUBJECTS", "export"]

OPSET: Final = 20
_KINDS: Final = MappingProxyType(
    {
        "text encoder": "albert deberta-v2 modernbert canine tapas yoso xlnet big_bird",
        "text decoder": "bloom cpmant falcon gemma3_text gpt_neox_japanese opt phi3 qwen3",
        "text to text": "bart prophetnet t5",
        "mixture of experts": "deepseek_v3 gpt_oss jetmoe llama4_text minimax_m2 mixtral",
        "state space": "jamba mamba mamba2 qwen3_next rwkv",
        "vision": "convnextv2 dinov3_vit dpt efficientnet segformer swinv2 timesformer vit_mae",
        "audio": "moonshine speech_to_text univnet wav2vec2",
        "several inputs": "blip clip git layoutlmv3",
        "time series": "patchtst",
    }
)

SUBJECTS: Final[Mapping[str, str]] = MappingProxyType(
    {name: kind for kind, names in _KINDS.items() for name in names.split()}
)
"""What each architecture is for, by its name in the catalogue; ``models/`` has none of them."""

_SUBTRACTION: Final = "it gives a number minus a tensor to an operator that takes a tensor first"
CAPTURED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "llama4_text": "it has no operator for the complex numbers of its rotations",
        "prophetnet": _SUBTRACTION,
        "t5": "it makes a view of a transposed tensor, which has no such strides",
        "xlnet": _SUBTRACTION,
    }
)
"""Those that torch's exporter fails on, with the reason: they come from ``samba.session.compile``."""


class _Flat(nn.Module):
    """Returns the tensors of what a module returns, and takes its inputs by position."""

    def __init__(
        self, module: nn.Module, names: tuple[str, ...], options: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.module = module
        self._names = names
        self._options = dict(options)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run it; what it returns under the same names, without the names."""
        results = self.module(**dict(zip(self._names, inputs, strict=True)), **self._options)
        leaves = torch.utils._pytree.tree_leaves(results)
        return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))


def export(name: str) -> onnx.ModelProto:
    """Return what torch's own exporter writes of an architecture, with sizes that are static.

    Args:
        name: In ``SUBJECTS``.
    """
    example = build(ARCHITECTURES[name])
    tensors = {key: value for key, value in example.inputs.items() if isinstance(value, Tensor)}
    options = {key: value for key, value in example.inputs.items() if key not in tensors}
    flat = _Flat(example.module, tuple(tensors), options).eval()
    file = io.BytesIO()
    with quiet():
        program = torch.onnx.export(
            flat,
            tuple(tensors.values()),
            dynamo=True,
            opset_version=OPSET,
            input_names=list(tensors),
            verbose=False,
        )
    assert program is not None
    program.save(file)  # type: ignore[arg-type]
    return onnx.load_from_string(file.getvalue())
