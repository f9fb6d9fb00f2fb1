"""Exported models compute what onnxruntime computes, and train like the modules they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from models import MODELS, build
from models.cache import cached_onnx
from samba_onnx.importing import Loss, OnnxModule, module_from_onnx, to_onnx
from tests.rows import others_slow

# Rounding alone, measured against float64, gives up to 1e-5 on the outputs, which are of order one.
TOLERANCE = {"rtol": 1e-5, "atol": 2e-5}
QUICK = ("lenet", "bert")


def _outputs(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _loss(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Weigh all floating-point outputs, each element differently."""
    generator = torch.Generator().manual_seed(3)
    total = torch.zeros(())
    for output in _outputs(result):
        if output.is_floating_point():
            total = total + (output * torch.randn(output.shape, generator=generator)).sum()
    return total


def _run(path: Path, inputs: dict[str, Tensor]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {key: value.numpy() for key, value in inputs.items()})


@pytest.mark.filterwarnings("ignore::samba_onnx.errors.FoldedWeightsWarning")
@pytest.mark.parametrize("name", list(MODELS))
def test_models_compute_what_onnxruntime_computes(name: str) -> None:
    path = cached_onnx(name, "tiny")
    example = build(name, "tiny")
    module = module_from_onnx(path).eval()
    inputs = example.draw(5)
    with torch.no_grad():
        outputs = _outputs(module(**inputs))
    wanted = _run(path, inputs)
    assert len(outputs) == len(wanted)
    for output, reference in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(output.numpy(), reference, **TOLERANCE)


def _grown(parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: one.grad for name, one in parameters.items() if one.grad is not None}


def _named(module: OnnxModule) -> dict[str, nn.Parameter]:
    return {module.onnx_names[name]: one for name, one in module.named_parameters()}


@pytest.mark.parametrize("name", others_slow(MODELS, QUICK))
def test_gradients_equal_those_of_the_exported_module(name: str) -> None:
    example = build(name, "tiny")
    module = module_from_onnx(cached_onnx(name, "tiny", raw=True)).eval()
    _loss(example.module(**example.inputs)).backward()
    _loss(module(**example.inputs)).backward()
    # Tied weights have two names, of which torch and its exporter may choose different ones.
    originals = dict(example.module.named_parameters(remove_duplicate=False))
    wanted, got = _grown(originals), _grown(_named(module))
    trained = {name for name in got if originals[name].requires_grad}
    assert {id(originals[name]) for name in trained} == {id(originals[name]) for name in wanted}
    # Some gradients are zero but for rounding, such as those of the biases of attention keys: the
    # largest one is the scale.
    largest = max(float(one.abs().max()) for one in wanted.values())
    for one in trained:
        torch.testing.assert_close(got[one], wanted[one], rtol=1e-5, atol=2e-6 * largest)


@pytest.mark.parametrize("name", others_slow(["lenet", "gpt2"], ["lenet"]))
def test_torch_traces_a_model_under_its_input_names(name: str) -> None:
    example = build(name, "tiny")
    module = module_from_onnx(cached_onnx(name, "tiny", raw=True)).eval()
    program = torch.export.export(module, (), dict(example.inputs), strict=False)
    assert list(program.graph_signature.user_inputs) == list(example.inputs)
    assert set(program.graph_signature.parameters) == {
        name for name, _ in module.named_parameters()
    }
    inputs = example.draw(4)
    with torch.no_grad():
        for actual, wanted in zip(
            _outputs(program.module()(**inputs)), _outputs(module(**inputs)), strict=True
        ):
            torch.testing.assert_close(actual, wanted, rtol=0, atol=0)


def test_training_steps_and_what_is_written_back_equal_torch(tmp_path: Path) -> None:
    example = build("lenet", "tiny")
    path = cached_onnx("lenet", "tiny", raw=True)
    original = example.module.train()
    name = example.outputs[0]
    module = module_from_onnx(path, losses=[Loss("cross_entropy", name, "label")])
    optimizers = [
        torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9) for one in (original, module)
    ]
    generator = torch.Generator().manual_seed(1)
    for step in range(5):
        inputs = example.draw(step)
        logits = original(**inputs)
        label = torch.randint(logits.shape[1], logits.shape[:1], generator=generator)
        wanted = nn.functional.cross_entropy(logits, label)
        loss, _ = module(*inputs.values(), label)
        torch.testing.assert_close(loss, wanted, rtol=1e-6, atol=0)
        for optimizer, one in zip(optimizers, (wanted, loss), strict=True):
            optimizer.zero_grad()
            one.backward()
            optimizer.step()
    to_onnx(module, tmp_path / "trained.onnx")
    inputs = example.draw(9)
    with torch.no_grad():
        reference = original.eval()(**inputs)
    result = _run(tmp_path / "trained.onnx", inputs)
    np.testing.assert_allclose(result[0], reference.numpy(), **TOLERANCE)
    assert np.abs(_run(path, inputs)[0] - result[0]).max() > 1e-3
