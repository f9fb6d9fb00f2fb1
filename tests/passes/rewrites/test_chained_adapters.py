"""Adapters that rewrite neighbours: each must read what its neighbour has become, not what it was.

Every pair of operators that an adapter rewrites, one behind the other, at every operator set at which both
do; and longer chains at random. The original runs on onnxruntime.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import samba_onnx
from samba_onnx.facts.versions import OPSET
from samba_onnx.passes.rewrites.convert_opset import ConvertOpsetPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.opset_adapters import ADAPTERS, OpsetAdapter
from samba_onnx.passes.rewrites.refusals import Refusal
from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.old_operators import INPUT_SHAPE, LINKS, chain_of, links_at, pairs

OPSETS = range(7, OPSET)
X = np.random.default_rng(7).uniform(0.1, 2.0, INPUT_SHAPE).astype(np.float32)
RELATIVE, ABSOLUTE = 1e-4, 1e-5
"""A flattened Softmax, a reduction and a Resize add in another order; three of them in a row amplify that to some
units of the sixth digit."""


def _run(model: onnx.ModelProto) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (result,) = run_onnxruntime(model.SerializeToString(), [X])
    return np.asarray(result)


def _converted(model: onnx.ModelProto) -> onnx.ModelProto:
    converted = ir.from_proto(model)
    InferShapesPass()(converted)
    rewrite = ConvertOpsetPass()
    rewrite(converted)
    assert not rewrite.notes
    assert converted.graph.opset_imports[""] == OPSET
    return ir.to_proto(converted)


def _problems(chains: Iterable[Sequence[str]], opset: int) -> tuple[list[str], int]:
    """Return what is wrong with the conversions of chains, and how many were compared."""
    problems, compared = [], 0
    for seed, names in enumerate(chains):
        chain = chain_of(names, opset, seed)
        if chain is None:
            continue
        model = chain.model()
        expected = _run(model)
        compared += 1
        try:
            actual = _run(_converted(model))
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, RELATIVE, ABSOLUTE)
        except Exception as error:  # one report for all chains
            problems.append(f"{' -> '.join(names)}: {' '.join(str(error).split())[:200]}")
    return problems, compared


def _random_chains(opset: int, number: int) -> list[list[str]]:
    random = np.random.default_rng(opset)
    names = links_at(opset)
    return [[str(name) for name in random.choice(names, 3)] for _ in range(number)]


@pytest.mark.parametrize("opset", OPSETS)
def test_chains_of_three_compute_what_they_did(opset: int) -> None:
    problems, compared = _problems(_random_chains(opset, 40), opset)
    assert not problems, "\n".join(problems)
    assert compared > 20


@pytest.mark.parametrize("opset", OPSETS)
def test_all_pairs_compute_what_they_did(opset: int) -> None:
    problems, compared = _problems(pairs(opset), opset)
    assert not problems, "\n".join(problems)
    assert compared >= len(links_at(opset))


def test_every_adapter_is_a_link_or_refuses() -> None:
    assert ADAPTERS.keys() - LINKS.keys() == {"Scan"}
    assert LINKS.keys() <= ADAPTERS.keys()


@pytest.mark.parametrize("opset", OPSETS)
def test_chains_run_as_pefs(opset: int, tmp_path: Path) -> None:
    """All passes behind the conversion take what the adapters wrote."""
    for seed, names in enumerate(_random_chains(opset, 6)):
        chain = chain_of(names, opset, seed)
        if chain is None:
            continue
        model = chain.model()
        with (
            samba_onnx.convert(model, tmp_path / "chain.pef", sample=False, trial=False) as pef,
            samba_onnx.Device(pef, threads=1) as device,
        ):
            (actual,) = device.run({"x": X}).values()
        np.testing.assert_allclose(actual, _run(model), RELATIVE, ABSOLUTE, err_msg=str(names))


@pytest.mark.parametrize("opset", range(7, 12))
def test_models_that_keep_their_operator_set_run_as_pefs(
    opset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one operator has no successor, here Dropout, passes meet all others as they were."""
    # Few operators of these versions really have none, and onnxruntime runs none of them in all five.
    refusing = OpsetAdapter(12, lambda model, node: Refusal("a test says so"))
    monkeypatch.setitem(ADAPTERS, "Dropout", refusing)
    for seed, name in enumerate(links_at(opset)):
        chain = chain_of([name, "Slice" if opset < 10 else "Unsqueeze"], opset, seed)
        assert chain is not None
        model = chain.model()
        last = model.graph.output[0].name
        model.graph.node.add(op_type="Dropout", input=[last], output=["dropped", "mask"])
        model.graph.node.append(onnx.helper.make_node("Cast", ["mask"], ["numbers"], to=1))
        model.graph.output.append(
            onnx.helper.make_tensor_value_info("numbers", onnx.TensorProto.FLOAT, None)
        )
        expected = run_onnxruntime(model.SerializeToString(), [X])
        with (
            samba_onnx.convert(model, tmp_path / "m.pef", sample=False, trial=False) as pef,
            samba_onnx.Device(pef, threads=1) as device,
        ):
            assert any(f"keeps opset {opset}" in note for note in pef.manifest.notes), name
            results = device.run({"x": X})
        for value, wanted in zip(model.graph.output, expected, strict=True):
            np.testing.assert_allclose(
                results[value.name], wanted, RELATIVE, ABSOLUTE, err_msg=name
            )


@pytest.mark.parametrize("ir_version", [3, 4, 8])
def test_constants_that_passes_add_need_no_inputs(ir_version: int, tmp_path: Path) -> None:
    """Before IR version 4 every initializer was an input: a stage of such a version would miss some."""
    scales = onnx.numpy_helper.from_array(np.array([1, 1, 2, 1.5], np.float32), "scales")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Upsample", ["x", "scales"], ["u"], mode="linear"),
            onnx.helper.make_node("Softmax", ["u"], ["y"], axis=1),
        ],
        "old",
        [
            value("x", onnx.TensorProto.FLOAT, INPUT_SHAPE),
            value("scales", onnx.TensorProto.FLOAT, [4]),
        ],
        [value("y", onnx.TensorProto.FLOAT, None)],
        [scales],
    )
    opsets = [onnx.helper.make_opsetid("", 9)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    with (
        samba_onnx.convert(model, tmp_path / "m.pef", sample=False) as pef,
        samba_onnx.Device(pef, threads=1) as device,
    ):
        versions = {pef.stage_model(number).ir_version for number in pef.manifest.stages()}
        inputs = pef.manifest.graphs[0].inputs
        given = (
            {"x": X} if ir_version < 4 else {"x": X, "scales": np.array([1, 1, 2, 1.5], np.float32)}
        )
        (actual,) = device.run(given).values()
    assert min(versions) >= 4
    assert len(inputs) == len(given)
    np.testing.assert_allclose(actual, _run(model), RELATIVE, ABSOLUTE)
