"""Where a program goes and with which options, from settings in every form that programs give them."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path
from typing import Any

import onnx
import pytest
from pydantic import BaseModel
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.facts.roundings import Rounding
from samba_onnx.sessions.arguments import tell_idle
from samba_onnx.sessions.session_options import (
    Destination,
    SessionOptions,
    default_name,
    flat_options,
    metadata_of,
    output_path,
)


class Inner(BaseModel):
    mapping: str = "spatial"


class Outer(BaseModel):
    batch_size: int = 3
    nothing: int | None = None
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (None, {}),
        (Outer(), {"batch_size": 3, "mapping": "spatial", "inner": {"mapping": "spatial"}}),
        ({"a": 1, "b": Inner(), "c": None}, {"a": 1, "mapping": "spatial", "b": Inner()}),
        (Namespace(a=1, b={"c": {"d": 2}}), {"a": 1, "d": 2, "c": {"d": 2}, "b": {"c": {"d": 2}}}),
    ],
)
def test_settings_are_opened_and_kept_whole(settings: Any, expected: dict[str, Any]) -> None:
    assert flat_options(settings) == expected


def test_what_are_no_settings() -> None:
    with pytest.raises(UsageError, match="settings are list; give a pydantic model"):
        flat_options(["a"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^setup was given dict; give a pydantic model$"):
        SessionOptions().setup({})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "out/relu/relu.pef"),
        ({"pef_name": "", "output_folder": ""}, "out/relu/relu.pef"),
        ({"pef_name": "net"}, "out/net/net.pef"),
        ({"pef_name": "net.pef", "output_folder": "there"}, "there/net/net.pef"),
        ({"pef_name": ".pefs"}, "out/.pefs/.pefs.pef"),
    ],
)
def test_where_a_program_goes(options: dict[str, Any], expected: str) -> None:
    assert output_path(options, nn.ReLU(), None) == Path(expected)
    assert output_path(options, nn.ReLU(), "else.pef") == Path("else.pef")


@pytest.mark.parametrize("name", [".", "..", "../up", "a/b", "nul\0", ".pef"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="give a file name without folders"):
        output_path({"pef_name": name}, None, None)


def test_names_without_a_name() -> None:
    def graph(name: str) -> onnx.ModelProto:
        return onnx.ModelProto(graph=onnx.GraphProto(name=name))

    assert default_name(nn.ReLU()) == "relu"
    assert default_name(graph("Main graph/1-b_c.d.")) == "Main_graph_1-b_c.d"
    assert default_name(graph("Xnet X")) == "Xnet_X"
    assert default_name(graph("..")) == default_name(None) == "model"
    assert default_name("there/net.onnx") == "net"


def test_several_rdus_take_two_settings() -> None:
    def chips(settings: dict[str, Any], **stated: Any) -> tuple[Any, Any]:
        made = Destination(overrides=stated).options(settings).chips
        return made.n_chips, made.tensor_parallel

    assert chips({"tensor_parallel": "batch", "n_chips": 2}) == (2, "batch")
    assert chips({"tensor_parallel": "batch"}, n_chips=4) == (4, "batch")
    one = chips({})
    for settings in ({"tensor_parallel": "batch"}, {"n_chips": 2}):
        assert chips(settings) == one
    assert chips({"tensor_parallel": "batch", "n_chips": 1}) == one


def test_roundings_are_those_that_any_setting_asks_for() -> None:
    def roundings(settings: dict[str, Any], **stated: Any) -> set[Rounding]:
        return set(Destination(overrides=stated).options(settings).numbers.stochastic_rounding)

    both = {"stochastic_rounding": "steps", "weight_grad_reduce": "bf16sr"}
    assert roundings(both) == {Rounding.STEPS, Rounding.GRADIENTS}
    assert roundings({"weight_grad_reduce": "bf16sr"}) == {Rounding.GRADIENTS}
    # What the call says counts, and not what settings say besides.
    assert roundings(both, stochastic_rounding=frozenset({Rounding.BIASES})) == {Rounding.BIASES}
    assert roundings(both, stochastic_rounding=None) == {Rounding.STEPS, Rounding.GRADIENTS}


def test_arguments_override_settings_of_which_the_first_counts() -> None:
    settings = {"o1": True, "optim_level": "o3", "precision": "bf16", "batch_size": 3}
    settings |= {"mapping": "spatial", "num_spatial_batches": 3}
    made = Destination().options(settings)
    assert (made.sections.level, made.numbers.precision) == ("o1", "bf16")
    assert made.training.spatial_batches == 3
    made = Destination(overrides={"level": "o0", "precision": None}).options(settings)
    assert (made.sections.level, made.numbers.precision) == ("o0", "bf16")


def test_rules_of_another_level_are_left_out_and_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"optimization_rules": "rules.yaml", "use_o1_default_rules": True}
    for level, rules in (("o1", ("rules.yaml", True)), ("o3", (None, None))):
        tell_idle.cache_clear()
        with caplog.at_level(logging.WARNING, "samba_onnx.sessions.arguments"):
            sections = Destination().options(settings | {"optim_level": level}).sections
        assert (sections.optimization_rules, sections.default_rules) == rules
        told = [text.partition(" has no effect: rules of fusion")[0] for text in caplog.messages]
        assert told == ([] if level == "o1" else ["optimization_rules", "use_o1_default_rules"])


def test_later_settings_override_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionOptions, "command_line", {"a": 0, "batch_size": 0, "mapping": "x"})
    options = SessionOptions()
    assert options.use_pinned_memory() is False
    options.setup(Outer())
    made = options.with_settings({"mapping": "section"})
    assert (made["a"], made["batch_size"], made["mapping"]) == (0, 3, "section")


def test_hints_are_for_one_compilation() -> None:
    options = SessionOptions()
    options.record_hints(none=None, off=False, empty=(), on=True, zero=0)
    for value in ([1], [1], [2], None):
        options.record_hint("several", value)
    with options.directives({"inside": 3}):
        assert options.current_directives == {"inside": 3}
    assert options.current_directives == {}
    expected = {"on": True, "zero": 0, "several": [[1], [2], None], "inside": 3}
    assert options.take_hints() == expected
    assert options.take_hints() == {}


def test_roundings_are_switched_for_one_compilation() -> None:
    options = SessionOptions()
    options.switch_rounding(Rounding.STEPS, True)
    options.switch_rounding(Rounding.GRADIENTS, False)
    stated = frozenset({Rounding.GRADIENTS, Rounding.BIASES})
    assert options.take_roundings(stated) == {Rounding.STEPS, Rounding.BIASES}
    assert options.take_roundings(stated) == stated


def test_metadata_of_mappings_and_objects() -> None:
    made = metadata_of({"a": 1, 2: "b"}, None, Namespace(a=[3], c="words"))
    assert made == {"a": "[3]", "2": "b", "c": "words"}
