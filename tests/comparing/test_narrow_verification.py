"""Float16 and quantised models: right conversions pass, whatever the seed, and a fault in a layer does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import samba_onnx
from samba_onnx.comparing.trials import Verification
from samba_onnx.comparing.verification import verify
from tests.narrow_models import bert, cnn, in_dynamic, in_float16, in_qdq, llama, mlp

MAKERS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "float16 MLP": lambda seed: in_float16(mlp(seed)),
    "float16 CNN": lambda seed: in_float16(cnn(seed)),
    "float16 BERT": lambda seed: in_float16(bert(seed)),
    "float16 BERT, interface in float32": lambda seed: in_float16(bert(seed), keep_io_types=True),
    "float16 LLaMA": lambda seed: in_float16(llama(seed)),
    "QDQ MLP": lambda seed: in_qdq(mlp, seed),
    "QDQ CNN, a scale per channel": lambda seed: in_qdq(cnn, seed),
    "QDQ CNN, a scale per tensor": lambda seed: in_qdq(cnn, seed, per_channel=False),
    "QDQ BERT": lambda seed: in_qdq(bert, seed),
    "dynamic MLP": lambda seed: in_dynamic(mlp(seed)),
    "dynamic BERT": lambda seed: in_dynamic(bert(seed)),
    "operators CNN": lambda seed: in_qdq(cnn, seed, operators=True),
}
FAST = ("float16 LLaMA", "QDQ CNN, a scale per channel", "dynamic MLP")


def verified(model: onnx.ModelProto, converted: onnx.ModelProto, folder: Path) -> Verification:
    """Compare the PEF of one model with another."""
    with samba_onnx.convert(converted, folder / "m.pef", sample=False, trial=False) as pef:
        return verify(model, pef)


def assert_right(model: onnx.ModelProto, folder: Path) -> None:
    """The PEF agrees with the model and with its own sample, as a function, too; no operator is left."""
    with samba_onnx.convert(model, folder / "m.pef") as pef:
        for result in (verify(model, pef), samba_onnx.self_test(pef)):
            assert [output for output in result.outputs if not output.passed] == []
            assert any(run.endswith("in float32 without rounding") for run in result.runs)
        reasons = [reason for stage in pef.manifest.fallbacks for reason in stage.reasons]
        assert {(reason.op_type, reason.code) for reason in reasons} <= {("Cast", "dtype")}
        assert len(reasons) <= len(pef.manifest.graphs[0].inputs) + 1


@pytest.mark.parametrize("kind", FAST)
def test_a_right_conversion_passes(kind: str, tmp_path: Path) -> None:
    assert_right(MAKERS[kind](0), tmp_path)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("kind", MAKERS)
def test_right_conversions_of_several_kinds_and_seeds_pass(
    kind: str, seed: int, tmp_path: Path
) -> None:
    assert_right(MAKERS[kind](seed), tmp_path)


QUANTISING = """
extends = "sn40l"
name = "mine"

[operators.QuantizeLinear]
assumed = ["float32", "int8"]
source = "ours"

[operators.DequantizeLinear]
assumed = ["float32", "int8"]
source = "ours"
"""


def test_a_target_whose_table_has_the_integers_keeps_them(tmp_path: Path) -> None:
    """Weights stay in their bytes there, and what is quantised between two products is so as int8."""
    (tmp_path / "mine.toml").write_text(QUANTISING)
    model = in_qdq(mlp)
    kinds = {}
    for target in ("sn40l", str(tmp_path / "mine.toml")):
        path = tmp_path / "m.pef"
        with samba_onnx.convert(model, path, target=target, sample=False, trial=False) as pef:
            assert verify(model, pef).passed
            assert not pef.manifest.fallbacks
            nodes = [
                node for one in pef.manifest.sections for node in pef.stage_model(one.id).graph.node
            ]
            operators = {node.op_type for node in nodes}
            weights = {
                symbol.type for symbol in pef.manifest.symbols if symbol.name.startswith("layer")
            }
            kinds[target] = ({"Round", "QuantizeLinear"} & operators, "tensor(int8)" in weights)
    assert list(kinds.values()) == [({"Round"}, False), ({"QuantizeLinear"}, True)]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind.startswith("float16")])
def test_float16_in_bfloat16_passes_by_the_roundings_of_that(
    kind: str, seed: int, tmp_path: Path
) -> None:
    model = MAKERS[kind](seed)
    with samba_onnx.convert(model, tmp_path / "m.pef", float16="bfloat16") as pef:
        for result in (verify(model, pef), samba_onnx.self_test(pef)):
            assert [output for output in result.outputs if not output.passed] == []
            assert "roundings of bfloat16" in result.outputs[0].tolerance


def tensors(model: onnx.ModelProto, ending: str) -> Iterator[onnx.TensorProto]:
    """Yield the weights of the linear layers, or what belongs to them."""
    for tensor in model.graph.initializer:
        if tensor.name.startswith("layer") and tensor.name.endswith(ending):
            yield tensor


def change(tensor: onnx.TensorProto, new: Callable[[np.ndarray], np.ndarray]) -> None:
    array = numpy_helper.to_array(tensor)
    changed = np.ascontiguousarray(new(array).astype(array.dtype).reshape(array.shape))
    tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))


def swapped(array: np.ndarray) -> np.ndarray:
    """The numbers of a matrix in the order of its transpose."""
    return np.asarray(array.T)


FAULTS: dict[str, tuple[dict[str, str], Callable[[np.ndarray], np.ndarray]]] = {
    "1 % in a weight": ({"float16": ".weight", "QDQ": ".weight_scale"}, lambda array: array * 1.01),
    "no bias": ({"float16": ".bias", "QDQ": ".bias_quantized"}, np.zeros_like),
    "axes swapped": ({"float16": ".weight", "QDQ": ".weight_quantized"}, swapped),
}
"""By fault, the ends of the names of the tensors that have it, and what becomes of their numbers."""


@pytest.mark.parametrize("kind", ["float16 BERT", "QDQ BERT"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", [0, 5])
def test_a_fault_in_any_layer_is_seen(kind: str, fault: str, seed: int, tmp_path: Path) -> None:
    model = MAKERS[kind](seed)
    endings, new = FAULTS[fault]
    names = [tensor.name for tensor in tensors(model, endings[kind.split(maxsplit=1)[0]])]
    assert len(names) == 12
    unseen = [name for name in names if _verified_with(model, name, new, tmp_path).passed]
    # The bias of a key adds the same to all scores of a query, which softmax takes away again: there
    # is nothing to see, but for where quantising clips the keys.
    keys = names[1::6]
    assert unseen == (keys if (kind, fault) == ("float16 BERT", "no bias") else [])


@pytest.mark.parametrize("kind", ["float16 BERT", "QDQ BERT"])
def test_one_percent_in_one_layer_is_seen_and_said(kind: str, tmp_path: Path) -> None:
    model = MAKERS[kind](0)
    endings, new = FAULTS["1 % in a weight"]
    name = list(tensors(model, endings[kind.split(maxsplit=1)[0]]))[3].name
    result = _verified_with(model, name, new, tmp_path)
    (output,) = result.outputs
    assert not output.passed
    assert output.run.endswith("in float32 without rounding")
    assert output.tolerance == "0.0001 of each element + 1e-05 of the largest"


def _verified_with(
    model: onnx.ModelProto, name: str, new: Callable[[np.ndarray], np.ndarray], folder: Path
) -> Verification:
    """Compare a model with the PEF of one that has a fault."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    change(next(tensor for tensor in copy.graph.initializer if tensor.name == name), new)
    return verified(model, copy, folder)
