"""The models have their published sizes, and weights under which they compute something."""

import contextlib

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from models import MODELS, Example, build
from models.example import InputSpec
from samba_onnx.errors import UsageError

PUBLISHED = {
    "logistic_regression": 784 * 10 + 10,
    "mlp": 669_706,  # the MNIST example that came with Keras
    "lenet": 61_706,  # the count usually given for LeNet-5 with a fully connected C3
    "resnet50": 25_557_032,  # torchvision
    "mobilenet_v3": 5_483_032,  # torchvision
    "unet": 31_037_698,  # milesial/Pytorch-UNet, 3 channels, 2 classes
    "bert": 109_482_240,
    "gpt2": 124_439_808,
    "vit": 86_567_656,  # with the head for 1000 classes
    "llama": 134_515_008,  # SmolLM-135M
}


def run(example: Example, seed: int) -> tuple[Tensor, ...]:
    with torch.no_grad():
        result = example.module(**example.draw(seed))
    return (result,) if isinstance(result, Tensor) else tuple(result)


def count(name: str, variant: str = "full") -> int:
    # Fake tensors have shapes and no content: nothing is drawn or computed. Convolutions are slower
    # that way, and the initialisation of transformers' ViT reads values, which they do not have.
    large = MODELS[name].file in ("models.bert", "models.gpt2", "models.llama", "models.whisper")
    with FakeTensorMode() if large else contextlib.nullcontext():
        module = build(name, variant).module
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_full_model_has_the_published_number_of_parameters(name: str) -> None:
    assert count(name) == PUBLISHED[name]


def test_the_lstm_has_the_parameters_of_its_equations() -> None:
    # Each direction: four gates, input and recurrent matrices, two biases.
    first = 2 * 4 * 256 * (128 + 256 + 2)
    second = 2 * 4 * 256 * (512 + 256 + 2)
    assert count("lstm") == 20000 * 128 + first + second + 512 * 4 + 4


def test_both_halves_of_whisper_base_have_its_published_parameters() -> None:
    assert count("whisper_encoder") + count("whisper_decoder") == 72_593_920


def test_the_large_llama_exceeds_what_one_protobuf_message_can_hold() -> None:
    attention = 2048 * (2048 + 512 + 512 + 2048)
    layer = attention + 3 * 2048 * 8192 + 2 * 2048
    parameters = count("llama", "large")
    assert parameters == 128256 * 2048 + 6 * layer + 2048
    assert 4 * parameters > 2**31


def test_every_model_with_a_published_size_is_checked() -> None:
    assert set(PUBLISHED) | {"lstm", "whisper_encoder", "whisper_decoder"} == set(MODELS)


def test_outputs_are_of_order_one_and_react_to_the_input(name: str) -> None:
    example = build(name, "tiny")
    first, second = run(example, 0), run(example, 7)
    assert len(first) == len(example.outputs)
    for one, other in zip(first, second, strict=True):
        assert one.isfinite().all()
        assert 0.1 < float(one.std()) < 3
        assert float((one - other).std()) > 0.3 * float(one.std())


@pytest.mark.parametrize("name", ["resnet50", "bert", "vit"])
def test_deep_models_react_to_the_input_at_full_size(name: str) -> None:
    example = build(name, "full")
    for one, other in zip(run(example, 0), run(example, 7), strict=True):
        assert float((one - other).std()) > 0.5 * float(one.std())


def test_the_seed_decides_weights_and_inputs(name: str) -> None:
    first, again, other = (build(name, "tiny", seed) for seed in (3, 3, 4))
    state = first.module.state_dict()
    repeated = again.module.state_dict()
    assert all(torch.equal(state[key], repeated[key]) for key in state)
    assert all(torch.equal(first.inputs[key], again.inputs[key]) for key in first.inputs)
    different = other.module.state_dict()
    assert all(
        not torch.equal(parameter, different[key])
        for key, parameter in first.module.named_parameters()
    )


def test_building_leaves_the_global_random_state_of_weights_out(name: str) -> None:
    torch.manual_seed(1)
    first = run(build(name, "tiny"), 0)
    torch.manual_seed(2)
    second = run(build(name, "tiny"), 0)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_batch_norms_hold_statistics_of_real_activations() -> None:
    norms = [
        module
        for module in build("resnet50", "tiny").module.modules()
        if isinstance(module, torch.nn.BatchNorm2d)
    ]
    assert len(norms) == 20
    for norm in norms:
        assert not norm.training
        assert norm.momentum == 0.1
        assert float(norm.running_mean.abs().max()) > 1e-3
        assert float(norm.running_var.std()) > 0
        assert float(norm.running_var.min()) > 0


def test_a_mask_ends_in_padding() -> None:
    spec = InputSpec("mask", (2, 8), ("batch", "sequence"), "mask")
    assert spec.draw(0).tolist() == [[1, 1, 1, 1, 1, 1, 0, 0]] * 2


@pytest.mark.parametrize(
    ("name", "variant", "words"),
    [("alexnet", "tiny", "no model 'alexnet'"), ("lenet", "large", "no variant 'large'")],
)
def test_unknown_models_and_variants_are_refused(name: str, variant: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        build(name, variant)
