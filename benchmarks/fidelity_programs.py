"""The programs of published figures, at their full sizes, built of configurations without any weight.

A row of ``published.toml`` becomes a plan, as ``samba-port analyze`` makes it, in seconds and below 1 GB::

    from benchmarks.fidelity_programs import planned
    from benchmarks.published import published_row, published_rows

    plan = planned(published_row("sn30/gpt2/o3/1600x6"))
    plan.manifest.sections  # with operators, FLOPs, bytes and modelled seconds of each
    plan.manifest.graphs[0].calls  # the schedule of one step
    plan.graphs[0].plan.stages  # the nodes of each section, as onnx_ir has them

Plans are kept in the process by program, target, level and number of RDUs, so that rows of one program share
one. ``planned(row, target=...)`` takes another target, by name, path or as a record, and ``level=...`` another
level, as for a statement of how much faster one is. ``exported(row)`` is the program before any pass.

GPT-2 is that of the vendor's tutorial, which is what was measured. What the sources leave open is decided here: models are
those of transformers with dropout as they come, attention written out (`eager`). Weights of GPT-2 are float32, and computed
with in bfloat16; those of other models are bfloat16, and AdamW, which also stands for the LAMB of BERT's logs, keeps float32
copies of them. The cache of a decoding step stays on the device, as do weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor, nn

from benchmarks.published import PublishedRow
from benchmarks.training_models import LossOnly
from samba_onnx import optim
from samba_onnx.compiling.compiler_settings import compiler_settings
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.planning import PlannedPrograms, plan_programs
from samba_onnx.compiling.torch.cached_decoder import generation_model
from samba_onnx.compiling.torch.porting import torch_program
from samba_onnx.compiling.torch.torch_models import TorchModel
from samba_onnx.facts.precisions import Precision
from samba_onnx.passes.targets import Target
from samba_onnx.pef.manifest import SourceModel
from samba_onnx.program.program import Program

__all__ = ["BUILDERS", "exported", "model", "planned"]

VOCABULARY: Final = 50257
LLAMAS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "llama-2-7b": {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "max_position_embeddings": 4096,
        },
        "llama-3-8b": {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
        },
        "mistral-7b": {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 32768,
        },
        "llama-3-70b": {
            "vocab_size": 128256,
            "hidden_size": 8192,
            "intermediate_size": 28672,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
        },
    }
)
"""Published configurations, as ``LlamaConfig`` takes them."""


class _Product(nn.Module):
    """A square matrix of weights."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, size))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class TutorialGPT2(nn.Module):
    """GPT-2 as the vendor's tutorial trains it: a loss for each token, and logits for the host beside it."""

    def __init__(self, model: Any) -> None:
        """Take GPT-2 of transformers, whose activation becomes GELU by the error function."""
        super().__init__()
        self.model = model
        for block in model.transformer.h:
            block.mlp.act = nn.GELU()

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return losses (batch * length), in the order of tokens, and logits (batch, length, vocabulary)."""
        hidden = self.model.transformer(input_ids, position_ids=position_ids)[0]
        logits = self.model.lm_head(hidden)
        losses = nn.functional.cross_entropy(
            logits.view(-1, logits.size(-1)), labels.view(-1), reduction="none"
        )
        return losses, logits * 1

    def grouped_parameters(self) -> tuple[list[nn.Parameter], ...]:
        """Return the parameters of each optimizer: embeddings, those whose weights decay, and others."""
        embeddings = [
            parameter
            for module in self.modules()
            if isinstance(module, nn.Embedding)
            for parameter in module.parameters()
        ]
        others = [one for one in self.parameters() if all(one is not known for known in embeddings)]
        return (
            embeddings,
            [one for one in others if one.dim() > 1],
            [one for one in others if one.dim() == 1],
        )


def gpt2(
    width: int,
    layers: int,
    heads: int,
    batch: int = 16,
    length: int = 1024,
    vocabulary: int = VOCABULARY,
) -> TorchModel:
    """Return GPT-2, to be trained by AdamW.

    Args:
        width: Of a token's vector.
        layers: Number of blocks.
        heads: Of attention.
        batch: Number of sequences.
        length: Tokens of each.
        vocabulary: Number of words.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=length,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        use_cache=False,
    )
    config._attn_implementation = "eager"
    with torch.device("meta"):
        module = TutorialGPT2(GPT2LMHeadModel(config)).train()
        names = ("input_ids", "position_ids", "labels")
        inputs = _integers(dict.fromkeys(names, (batch, length)))
    embeddings, decayed, others = module.grouped_parameters()
    optimizers = tuple(
        optim.AdamW(group, lr=7.5e-6, weight_decay=decay, max_grad_norm=1.0)
        for group, decay in ((embeddings, 0.1), (decayed, 0.1), (others, 0.0))
    )
    return TorchModel("GPT2LMHeadModel", module, (), inputs, optimizers=optimizers)


def bert(
    width: int,
    layers: int,
    heads: int,
    batch: int,
    length: int = 128,
    vocabulary: int = 30522,
) -> TorchModel:
    """Return BERT with both heads of its pre-training, to be trained by AdamW.

    Args:
        width: Of a token's vector.
        layers: Number of blocks.
        heads: Of attention.
        batch: Number of sequences.
        length: Tokens of each.
        vocabulary: Number of words.
    """
    from transformers import BertConfig, BertForPreTraining

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    config._attn_implementation = "eager"
    names = ("input_ids", "attention_mask", "token_type_ids", "labels")
    inputs: dict[str, tuple[int, ...]] = dict.fromkeys(names, (batch, length))
    return _trained(lambda: BertForPreTraining(config), {**inputs, "next_sentence_label": (batch,)})


def llama_prompt(
    model: str, tokens: int, batch: int = 1, padded: int = 0, **changes: int
) -> TorchModel:
    """Return a Llama that reads prompts and keeps their keys and values on the device.

    Args:
        model: One of ``LLAMAS``.
        tokens: Of each prompt.
        batch: Number of prompts.
        padded: Tokens that the program reads of each, if not as many.
        **changes: Sizes that differ from the published ones.
    """
    return _generating(model, changes, batch, padded or tokens, padded or tokens)


def llama_token(model: str, rows: int, batch: int = 1, **changes: int) -> TorchModel:
    """Return a Llama that reads one token of each sequence, with its cache on the device.

    Args:
        model: One of ``LLAMAS``.
        rows: Tokens that the cache has room for.
        batch: Number of sequences.
        **changes: Sizes that differ from the published ones.
    """
    return _generating(model, changes, batch, rows, 1)


def gemm(size: int) -> TorchModel:
    """Return the product of two square matrices, of which one is a weight.

    Args:
        size: Rows and columns.
    """
    with torch.device("meta"):
        x = torch.empty(size, size, dtype=torch.bfloat16)
        return TorchModel(f"gemm {size}", _Product(size).to(torch.bfloat16), (), {"x": x})


def elementwise(function: str, elements: int) -> TorchModel:
    """Return an activation of a vector.

    Args:
        function: ``relu`` or ``sigmoid``.
        elements: Of the vector.
    """
    module = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid}[function]()
    x = torch.empty(elements, dtype=torch.bfloat16, device="meta")
    return TorchModel(f"{function} {elements}", module, (), {"input": x})


def conv2d(
    channels: int, kernels: int, window: int, stride: int, size: int, batch: int
) -> TorchModel:
    """Return a convolution of square images.

    Args:
        channels: Of an image.
        kernels: Channels of the result.
        window: Rows and columns of a kernel.
        stride: Of the window.
        size: Rows and columns of an image.
        batch: Number of images.
    """
    with torch.device("meta"):
        layer = nn.Conv2d(channels, kernels, window, stride, window // 2, bias=False)
        x = torch.empty(batch, channels, size, size, dtype=torch.bfloat16)
        return TorchModel("conv2d", layer.to(torch.bfloat16), (), {"input": x})


BUILDERS: Final[Mapping[str, Callable[..., TorchModel]]] = MappingProxyType(
    {
        "gpt2": gpt2,
        "bert": bert,
        "llama_prompt": llama_prompt,
        "llama_token": llama_token,
        "conv2d": conv2d,
        "gemm": gemm,
        "elementwise": elementwise,
    }
)
"""By the name in ``published.toml``."""


LOSSES: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType({"gpt2": (0, 1)})
"""Outputs from which training starts, where it is not the one loss. The tutorial states none, and then SambaFlow's
documents say that gradients begin at all outputs: those of logits are read from memory, whatever they are."""


def model(row: PublishedRow) -> TorchModel:
    """Return the module of a row, on the meta device, with its inputs and optimizers.

    Args:
        row: A published figure.
    """
    return BUILDERS[row.program](**row.sizes)


def exported(row: PublishedRow, *, level: str | None = None) -> Program:
    """Return the program of a row before any pass, a new one whenever it is called.

    Args:
        row: A published figure.
        level: Of the sections, if not the row's.
    """
    options = CompileOptions.of(
        loss_indices=LOSSES.get(row.program), level=level or row.level, precision=Precision.BF16
    )
    return torch_program(model(row), options)


@dataclass(frozen=True)
class _Key:
    program: str
    sizes: tuple[tuple[str, int | str], ...]
    rdus: int
    target: str
    level: str


_PLANS: Final[dict[_Key, PlannedPrograms]] = {}


def planned(
    row: PublishedRow, *, target: str | Target | None = None, level: str | None = None
) -> PlannedPrograms:
    """Return the plan of a row's program: one replica's, with sections, schedule and transfers.

    Args:
        row: A published figure.
        target: The device, if not the row's profile. Plans for a record are not kept.
        level: If not the row's.

    Raises:
        TargetError: There is no such target.
        OutOfDeviceMemoryError: The program does not fit into its memory.
    """
    target, level = target or row.profile, level or row.level
    if not isinstance(target, str):
        return _plan(row, target, level)
    key = _Key(row.program, tuple(sorted(row.sizes.items())), row.rdus, target, level)
    if key not in _PLANS:
        _PLANS[key] = _plan(row, target, level)
    return _PLANS[key]


def _plan(row: PublishedRow, target: str | Target, level: str) -> PlannedPrograms:
    options = CompileOptions.of(target=target, level=level, n_chips=row.rdus)
    settings = compiler_settings(options)
    return plan_programs([exported(row, level=level)], SourceModel(row.id, "torch", 0, 0), settings)


def _trained(build: Callable[[], nn.Module], shapes: Mapping[str, tuple[int, ...]]) -> TorchModel:
    with torch.device("meta"):
        module = LossOnly(build()).to(torch.bfloat16).train()
        inputs = _integers(shapes)
    optimizer = optim.AdamW(module.parameters(), lr=1e-4, weight_decay=0.1, fp32_params=True)
    name = type(module.model).__name__
    return TorchModel(name, module, (), inputs, optimizers=(optimizer,))


def _integers(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Return integers without values, as tokens and their labels are."""
    return {name: torch.empty(shape, dtype=torch.int64) for name, shape in shapes.items()}


def _generating(
    name: str, changes: Mapping[str, int], batch: int, rows: int, length: int
) -> TorchModel:
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        config = LlamaConfig(**{**LLAMAS[name], **changes})
        llama = LlamaForCausalLM(config).bfloat16()
    return generation_model(name, llama, batch=batch, tokens=length, rows=rows)
