"""From a Hugging Face configuration to a module with random weights and example inputs.

Nothing is read from a hub: the configuration is a file, and weights are drawn. What a model
costs depends on neither.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from samba_onnx.compiling.model_sources import configuration_file
from samba_onnx.compiling.torch.torch_models import TorchModel
from samba_onnx.errors import ModelError, ModelLimitError, UsageError
from samba_onnx.export.capture.fake_members import fake as without_content
from samba_onnx.export.capture.fake_members import fake_members
from samba_onnx.safety.files import printable, read_document

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

__all__ = ["causal_model", "from_configuration", "stated_positions"]

LENGTH = 128
"""Tokens of a text, where the model takes so many."""
IMAGE_SIZE = 224
"""Height and width of an image, where the configuration states none."""
SAMPLES = 16_000
"""Samples of a sound: one second as speech models hear it."""
FRAMES = 128
"""Frames of a spectrogram, where the configuration states none."""
_RESERVED = 8
"""Positions that models may keep for themselves: whether these are too many only values tell."""
_PARTS = ("text_config", "vision_config", "audio_config", "encoder", "decoder")
"""Where configurations of several models keep those of each."""
_SEED = 0


def from_configuration(source: str, *, weights: bool = True) -> TorchModel:
    """Return the model that a configuration describes.

    The class is the first of ``architectures`` that transformers has, else the one of ``AutoModel``;
    the inputs are the first that the module itself computes something of: its main input alone, with
    that of its decoder, or with all others that the configuration describes; batch 1.

    Args:
        source: A ``config.json``, or the folder of one.
        weights: Draw weights. Otherwise they have sizes and types only, which is enough to analyze a model of
            any size, unless the module needs their values to be built or to run: then they are drawn, too.

    Returns:
        The module in evaluation mode, without a cache of keys and values, with inputs by keyword.

    Raises:
        UsageError: transformers is not installed, or the file cannot be read.
        ModelError: It is no configuration that transformers can build from, or the module takes
            none of the inputs.
        ModelLimitError: Its weights take more memory than there is.
    """
    name = printable(source)
    config = _configuration(source, name)
    # The user's own random numbers go on as if none had been drawn here.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        # Where a text is nearly as long as there are positions, only a run
        # with values tells if it fits.
        weights = weights or _positions(config, 2 * LENGTH) <= LENGTH + _RESERVED
        try:
            module, inputs = _with_inputs(config, name, "cpu" if weights else "meta")
        except ModelError:
            if weights:
                raise
            # From the file once more: transformers writes into the
            # configuration that it builds from.
            module, inputs = _with_inputs(_configuration(source, name), name, "cpu")
    folder = configuration_file(source).resolve().parent.name
    return TorchModel(folder or type(module).__name__, module, (), inputs)


def causal_model(source: str) -> tuple[str, PreTrainedModel, int | None]:
    """Return the language model that a configuration describes, with sizes and types of weights only.

    Args:
        source: A ``config.json``, or the folder of one.

    Returns:
        A name for people; the model on the meta device, in the type that the configuration states; and how many tokens
        a text may have, None where the configuration does not say.

    Raises:
        UsageError: transformers is not installed, or the file cannot be read.
        ModelError: It is no configuration of a causal language model that transformers can build.
    """
    name = printable(source)
    config = _configuration(source, name)
    import transformers

    kinds = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    kind: Any = kinds.get(type(config), None)
    if kind is None:
        raise ModelError(
            f"{name}: transformers has no causal language model of the model_type {config.model_type!r}: nothing "
            "generates a text token by token there; samba-port analyze takes it"
        )
    with torch.device("meta"):
        module = _built(kind._from_config, config, name)
    folder = configuration_file(source).resolve().parent.name
    return folder or type(module).__name__, module, _positions(config, 0) or None


def stated_positions(source: str) -> int | None:
    """Return how many tokens a text may have by a configuration; None where it does not say.

    Args:
        source: A ``config.json``, or the folder of one.

    Raises:
        UsageError: transformers is not installed, or the file cannot be read.
        ModelError: It is no configuration that transformers can build from.
    """
    return _positions(_configuration(source, printable(source)), 0) or None


def _with_inputs(
    config: PretrainedConfig, name: str, device: str
) -> tuple[nn.Module, dict[str, Tensor]]:
    """Build the module on a device, ``meta`` for one without values, with its example inputs."""
    with torch.device(device):
        module = _module(config, name).eval()
    return module, _accepted(module, config, name, device)


def _configuration(source: str, name: str) -> PretrainedConfig:
    """Read the file and make transformers' record of it."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when the package is first imported
    try:
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError:
        raise UsageError(
            f"{name}: a Hugging Face configuration needs transformers: pip install transformers"
        ) from None
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    text = read_document(configuration_file(source), what="configuration", error=UsageError)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ModelError(f"{name}: is no JSON document: {error}") from None
    kind = content.get("model_type") if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        has = "no model_type" if kind is None else f"the model_type {printable(kind)!r}"
        raise ModelError(
            f"{name}: has {has}; expected one that transformers {transformers.__version__} has a class "
            "for: code beside a configuration is not run; give package.module:factory in its place"
        )
    try:
        # Not from the dictionary: only this knows how transformers writes infinity.
        config: PretrainedConfig = CONFIG_MAPPING[kind].from_json_file(configuration_file(source))
    except Exception as error:  # whatever classes of configurations raise
        raise ModelError(f"{name}: transformers refuses it: {_reason(error)}") from error
    _settle(config)
    return config


def _settle(config: PretrainedConfig) -> None:
    """Turn off what is for generating text, and what would be read from a hub."""
    for part in (config, *_parts(config)):
        for setting in ("use_cache", "use_pretrained_backbone"):
            if hasattr(part, setting):
                setattr(part, setting, False)


def _parts(config: PretrainedConfig) -> list[Any]:
    """Return the configurations inside of one."""
    parts = (getattr(config, name, None) for name in _PARTS)
    return [part for part in parts if hasattr(part, "to_dict")]


def _module(config: PretrainedConfig, name: str) -> Any:
    """Build the module on random weights."""
    import transformers

    stated = [
        getattr(transformers, str(architecture), None)
        for architecture in config.architectures or ()
    ]
    kind: Any = next((one for one in stated if hasattr(one, "_from_config")), None)
    build = transformers.AutoModel.from_config if kind is None else kind._from_config
    return _built(build, config, name)


def _built(build: Callable[..., Any], config: PretrainedConfig, name: str) -> Any:
    try:
        module: Any = build(config)
    except Exception as error:  # whatever constructors of models raise
        # torch raises a RuntimeError where it gets no memory.
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            raise ModelLimitError(f"{name}: its weights take more memory than there is") from None
        raise ModelError(f"{name}: transformers cannot build it: {_reason(error)}") from error
    if hasattr(module, "set_experts_implementation"):
        # All experts compute: the other implementations have sizes that depend on values.
        module.set_experts_implementation("batched_mm")
    return module


def _accepted(
    module: nn.Module, config: PretrainedConfig, name: str, device: str
) -> dict[str, Tensor]:
    """Return the first inputs that the module itself computes something of."""
    refusal = "it has no input of a kind that is known"
    for inputs in _candidates(module, config):
        try:
            _try(module, inputs, fake=device == "meta")
        except Exception as error:  # whatever the module raises
            shapes = ", ".join(f"{key} {list(value.shape)}" for key, value in inputs.items())
            refusal = f"with {shapes}: {_reason(error)}"
        else:
            return inputs
    raise ModelError(
        f"{name}: {type(module).__name__} takes no example inputs of ours: {refusal}; give "
        "package.module:factory, which returns its own"
    )


def _try(module: nn.Module, inputs: dict[str, Tensor], *, fake: bool) -> None:
    """Run a module once; with sizes and types only where it has no values."""
    if not fake:
        with torch.no_grad():
            module(**inputs)
        return
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.no_grad(), fake_members(module, mode), mode:
        module(**{key: without_content(value, mode) for key, value in inputs.items()})


def _candidates(module: nn.Module, config: PretrainedConfig) -> Iterator[dict[str, Tensor]]:
    """Return inputs by keyword, the simplest first."""
    known = inspect.signature(module.forward).parameters
    main = str(getattr(module, "main_input_name", "input_ids"))
    dtype = next((parameter.dtype for parameter in module.parameters()), torch.float32)
    choices = {name: _choices(name, config, dtype) for name in _KINDS if name in known}
    first = [name for name in (main,) if name in choices]
    decoder = ["decoder_input_ids"] if "decoder_input_ids" in choices else []
    others = [name for name in choices if name not in decoder]
    seen: list[list[str]] = []
    for names in (first, first + decoder, others, others + decoder):
        if not names or names in seen:
            continue
        seen.append(names)
        for variant in range(max(len(choices[name]) for name in names)):
            yield {name: choices[name][min(variant, len(choices[name]) - 1)] for name in names}


_KINDS = ("input_ids", "pixel_values", "input_values", "input_features", "decoder_input_ids")
"""Inputs that examples are known for."""


def _choices(name: str, config: PretrainedConfig, dtype: torch.dtype) -> list[Tensor]:
    """Return examples of an input: those first that say most about the configuration."""
    if name.endswith("input_ids"):
        return _tokens(config)
    shapes = {
        "pixel_values": _image_shapes,
        "input_values": _sound_shapes,
        "input_features": _spectrogram_shapes,
    }[name](config)
    return [torch.randn(shape).to(dtype) for shape in shapes]


def _tokens(config: PretrainedConfig) -> list[Tensor]:
    """Return identifiers of tokens, ``[1, 128]`` or as many as there are positions; then half as many.

    Some models, as RoBERTa, keep the first positions for themselves.
    """
    length = min(LENGTH, _positions(config, LENGTH))
    words = _figure(config, ("vocab_size",), 2)
    # Not the first few, which are padding and the like.
    return [
        torch.randint(min(3, words - 1), words, (1, size)) for size in (length, max(length // 2, 1))
    ]


def _positions(config: PretrainedConfig, otherwise: int) -> int:
    """Return how many tokens a text may have."""
    names = ("max_position_embeddings", "n_positions", "max_target_positions", "max_length")
    return _figure(config, names, otherwise)


def _image_shapes(config: PretrainedConfig) -> list[tuple[int, ...]]:
    """Return ``[1, channels, height, width]``, and for videos ``[1, frames, ...]`` first."""
    channels = _figure(config, ("num_channels", "in_channels", "in_chans"), 3)
    size = _setting(config, ("image_size", "input_size"))
    if isinstance(size, int):
        size = (size, size)
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        size = (IMAGE_SIZE, IMAGE_SIZE)
    image = (channels, int(size[0]), int(size[1]))
    frames = _figure(config, ("num_frames",), 0)
    return [(1, frames, *image), (1, *image)] if frames else [(1, *image)]


def _sound_shapes(config: PretrainedConfig) -> list[tuple[int, ...]]:
    """Return ``[1, frames, bins]`` where the configuration speaks of bins; and ``[1, samples]``."""
    bins = _figure(config, ("num_mel_bins",), 0)
    frames = _figure(config, ("max_length",), FRAMES)
    samples = [(1, SAMPLES), (1, 1, SAMPLES)]
    return [(1, frames, bins), *samples] if bins else [*samples]


def _spectrogram_shapes(config: PretrainedConfig) -> list[tuple[int, ...]]:
    """Return ``[1, bins, frames]`` as Whisper takes it, and ``[1, frames, bins]``."""
    names = ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim")
    bins = _figure(config, names, 80)
    positions = _figure(config, ("max_source_positions",), FRAMES // 2)
    return [(1, bins, 2 * positions), (1, FRAMES, bins)]


def _setting(config: PretrainedConfig, names: Sequence[str]) -> Any:
    """Return the first of several settings that a configuration has, or one inside of it."""
    for part in (config, *_parts(config)):
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return None


def _figure(config: PretrainedConfig, names: Sequence[str], otherwise: int) -> int:
    """Return a setting that is a positive integer."""
    value = _setting(config, names)
    return value if isinstance(value, int) and value > 0 else otherwise


def _reason(error: Exception) -> str:
    text = printable(" ".join(str(error).split()), 300)
    return f"{type(error).__name__}: {text}"
