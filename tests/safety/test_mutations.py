"""No file reaches an internal error: thousands of valid models with a field that nobody would write.

A mutation is converted, or refused by an error that says what is wrong with the model. Nothing is run: whatever
native code does with what is compiled, it does in another process.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

import onnx
import pytest

import samba_onnx
from samba_onnx.errors import InternalError, SambaError
from tests.backend_cases import disk_cases, node_cases
from tests.passes.rewrites.old_operators import chain_of, links_at
from tests.safety.mutations import mutated

LARGEST = 100_000
"""Bytes of a model that is mutated: where, is drawn from all of its fields."""
QUICK_MODULES = ("clip", "if_", "loop", "pad", "resize", "sequence_map", "slice", "split", "topk")
"""Modules of the backend suite whose cases are quick to load: constants, subgraphs, sequences, functions."""
EACH = 60
"""Mutations of one test."""


@functools.cache
def _quick_models() -> tuple[onnx.ModelProto, ...]:
    """Return a few models, and chains of operators of old operator sets."""
    models = [case.model for case in node_cases(QUICK_MODULES)]
    chains = [chain_of(links_at(opset)[opset % 5 :: 7][:3], opset, opset) for opset in range(7, 21)]
    return (*models, *(chain.model() for chain in chains if chain is not None))


@functools.cache
def _all_models() -> tuple[onnx.ModelProto, ...]:
    cases = (*node_cases(), *disk_cases(("simple", "pytorch-operator", "pytorch-converted")))
    models = [case.model for case in cases if case.model.ByteSize() < LARGEST]
    return (*models, *_quick_models())


def _convert(model: onnx.ModelProto, seed: int, folder: Path) -> bool:
    """Convert a mutation; return whether there was one that is a model."""
    mutation = mutated(model, seed)
    if mutation is None:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samba_onnx.convert(
                mutation, folder / "m.pef", sample=False, trial=False, keep_dynamic=seed % 3 == 0
            ).close()
    except InternalError as error:
        raise AssertionError(f"mutation {seed}: {error}") from error
    except SambaError:
        return True
    except Exception as error:
        raise AssertionError(f"mutation {seed}: {type(error).__name__}: {error}") from error
    return True


@pytest.mark.parametrize("part", range(4))
def test_a_sample_of_mutations_is_converted_or_refused(part: int, tmp_path: Path) -> None:
    models = _quick_models()
    tried = [
        _convert(models[seed * 7919 % len(models)], seed, tmp_path)
        for seed in range(part * EACH, (part + 1) * EACH)
    ]
    assert sum(tried) > EACH // 2


@pytest.mark.parametrize("part", range(120))
def test_mutations_of_the_whole_suite_are_converted_or_refused(part: int, tmp_path: Path) -> None:
    models = _all_models()
    tried = [
        _convert(models[seed * 7919 % len(models)], seed, tmp_path)
        for seed in range(part * EACH, (part + 1) * EACH)
    ]
    assert sum(tried) > EACH // 2


def test_a_mutation_follows_from_its_seed() -> None:
    model = _quick_models()[0]
    before = model.SerializeToString()
    first, second = (
        [
            None if m is None else m.SerializeToString()
            for m in (mutated(model, seed) for seed in range(40))
        ]
        for _ in range(2)
    )
    assert first == second
    assert model.SerializeToString() == before
    assert len({content for content in first if content not in (None, before)}) > 25
