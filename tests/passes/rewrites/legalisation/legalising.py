"""Helpers of the tests of legalisation: one node, before and after, on a target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.fix_names import FixNamesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.legalisation.forms import FormFinder, LegalForm
from samba_onnx.passes.rewrites.legalisation.legalise import LegalisePass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.passes.targets import Target, load_target
from tests.passes.rewrites.applying import add_weights, operators, parse, run

TARGET = load_target("sn40l")
UNROLLING = replace(TARGET, summary=replace(TARGET.summary, repeats_bodies=False))
"""The same target as one that repeats no bodies."""


class Everything:
    """Chooses all nodes that can be rewritten."""

    def __init__(self, target: Target = TARGET) -> None:
        self.finder = FormFinder(target)
        self.target = target

    def fallbacks(self, model: ir.Model) -> Collection[ir.Node]:
        return [node for node in model.graph if self.target.support(node).reason is not None]

    def choose_webs(
        self,
        model: ir.Model,
        fallbacks: Sequence[Collection[ir.Node]],
        apply: Callable[[ir.Model, Collection[int]], None],
    ) -> Collection[int]:
        return range(len(fallbacks))

    def choose(self, model: ir.Model, forms: Mapping[ir.Node, LegalForm]) -> Collection[ir.Node]:
        return list(forms)

    def refuse(self, node: ir.Node, rule: str, refusal: Refusal) -> None:
        self.refused = (node, rule, refusal)


def prepared(text: str, weights: Mapping[str, Any] | None = None) -> ir.Model:
    """Return a model from text, some inputs made initializers, constants lifted, types inferred."""
    model = add_weights(parse(text), weights or {})
    LiftConstantsPass()(model)
    InferShapesPass()(model)
    return model


def legalised(
    text: str,
    inputs: Sequence[Any],
    weights: Mapping[str, Any] | None = None,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    target: Target = TARGET,
) -> list[str]:
    """Rewrite a model, hold it against onnxruntime on the original, and return its operators.

    Every node that it has then runs on the target.
    """
    model = prepared(text, weights)
    before = run(model, inputs)
    rewrite = LegalisePass(Everything(target))
    assert rewrite(model).modified, rewrite.refusals.lines()
    InferShapesPass()(model)
    FixNamesPass()(model)  # names within bodies are those of no other value
    assert [target.support(node).reason for node in model.graph] == [None] * len(model.graph)
    for old, new in zip(before, run(model, inputs), strict=True):
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        np.testing.assert_allclose(new, old, rtol=rtol, atol=atol)
    return operators(model)


def refusal(text: str, weights: Mapping[str, Any] | None = None, *, target: Target = TARGET) -> str:
    """Return why a model's node is left."""
    rewrite = LegalisePass(Everything(target))
    assert not rewrite(prepared(text, weights)).modified
    (line,) = rewrite.refusals.lines()
    return line
