"""Architectures of ``transformers``, each in a tiny random configuration."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.architectures import decoders, encoders, images, sounds, translators
from tests.architectures.record import Architecture

ARCHITECTURES: Final[Mapping[str, Architecture]] = MappingProxyType(
    {
        architecture.name: architecture
        for room in (encoders, decoders, translators, images, sounds)
        for architecture in room.ARCHITECTURES
    }
)
"""By name."""

assert len(ARCHITECTURES) == sum(
    len(room.ARCHITECTURES) for room in (encoders, decoders, translators, images, sounds)
), "two architectures have one name"
