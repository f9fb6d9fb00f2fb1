"""What ONNX's own operator definitions say, in a form that is quick to ask."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import onnx

__all__ = ["Operator", "is_retired", "newest_version", "operator"]

_KINDS: dict[str, int] = dict(onnx.AttributeProto.AttributeType.items())

_RETIRED = frozenset(
    {
        "ATen",
        "Affine",
        "ConstantFill",
        "Crop",
        "DynamicSlice",
        "GRUUnit",
        "GivenTensorFill",
        "ImageScaler",
        "ParametricSoftplus",
        "Scale",
        "ScaledTanh",
    }
)
"""Experimental operators of the default domain without a definition; old exporters wrote them, and
onnxruntime still runs some."""


@dataclass(frozen=True)
class Operator:
    """One version of an operator's signature."""

    inputs: tuple[int, int]
    """Fewest and most inputs."""
    outputs: tuple[int, int]
    needed: tuple[bool, ...]
    """By position: whether the input may not be left out with an empty name."""
    attributes: dict[str, int]
    """Type of each attribute, as in ``AttributeProto.AttributeType``."""
    required: frozenset[str]
    deprecated: bool


@functools.cache
def newest_version(domain: str) -> int | None:
    """Return the newest version of an operator set that onnx defines; None for a custom domain."""
    versions = onnx.defs.C.schema_version_map()
    return int(versions[domain][1]) if domain in versions else None


# Bounded, since names come from models, of which a service may see many.
@functools.lru_cache(maxsize=4096)
def operator(name: str, domain: str, version: int) -> Operator | None:
    """Return the signature of an operator at an opset version; None if onnx defines none.

    Args:
        name: The operator's name.
        domain: A normal domain (see ``normal_domain``).
        version: The version of the domain's operator set that the model imports.
    """
    try:
        schema = onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return None
    options = onnx.defs.OpSchema.FormalParameterOption
    return Operator(
        inputs=(schema.min_input, schema.max_input),
        outputs=(schema.min_output, schema.max_output),
        # An empty name is allowed only for an optional operand, or for a variadic one beyond the
        # fewest.
        needed=tuple(
            parameter.option == options.Single
            or (parameter.option == options.Variadic and place < schema.min_input)
            for place, parameter in enumerate(schema.inputs)
        ),
        attributes={
            key: _KINDS[str(attribute.type).rpartition(".")[2]]
            for key, attribute in schema.attributes.items()
        },
        required=frozenset(k for k, attribute in schema.attributes.items() if attribute.required),
        deprecated=schema.deprecated,
    )


def is_retired(name: str, domain: str) -> bool:
    """Tell whether an operator without a definition may still be met in old models."""
    return domain == "" and name in _RETIRED
