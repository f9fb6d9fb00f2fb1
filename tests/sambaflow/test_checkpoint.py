"""Checkpoints that Hugging Face's own library wrote, loaded onto the device."""

from __future__ import annotations

import importlib
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import ModelFileError, NoDeviceError, UsageError
from samba_onnx.pef import load_pef
from samba_onnx.pef.gradients import reduction_transfers
from samba_onnx.sambaflow.samba.utils.checkpoint import load_sharded_checkpoint
from samba_onnx.sessions import SESSION
from tests.sambaflow.test_process_groups import clean

FORMS = ("safetensors shards", "torch shards", "safetensors", "torch", "file")


class Network(nn.Module):
    base_model_prefix = "inner"

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6)).to(dtype)
        self.head = nn.Linear(6, 6, dtype=dtype)
        self.head.weight = self.inner[2].weight  # type: ignore[assignment]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        output = self.head(self.inner(x))
        return nn.functional.mse_loss(output, x), output


def reference(seed: int = 5) -> Network:
    torch.manual_seed(seed)
    network = Network()
    network.inner[1].running_mean.normal_()  # type: ignore[operator, union-attr]
    return network.eval()


X = torch.linspace(-1, 1, 24).reshape(4, 6)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A network without memory for its parameters, ready to be trained."""
    SESSION.reset()
    with torch.device("meta"):
        network = Network().eval()
    network.inner[1] = nn.BatchNorm1d(6).eval()  # init_empty_weights leaves buffers in memory
    samba.from_torch_model_(network)
    inputs = (samba.from_torch_tensor(X, name="x"),)
    optimizer = samba.optim.SGD(network.parameters(), lr=0.1)
    pef = SESSION.compile(
        network, inputs, optimizer, output=tmp_path_factory.mktemp("pef") / "m.pef"
    )
    samba.utils.trace_graph(network, inputs, optimizer, pef=pef, transfer_device=False)
    for state in SESSION.optim_dict.values():
        state.rdu()
    yield network
    SESSION.reset()


def saved(network: nn.Module, folder: Path, form: str = "safetensors") -> Path:
    folder.mkdir()
    save_torch_state_dict(
        network.state_dict(),
        folder,
        max_shard_size=200 if "shards" in form else "1GB",
        safe_serialization="torch" not in form,
    )
    assert (len(list(folder.iterdir())) > 3) == ("shards" in form)
    return next(folder.iterdir()) if form == "file" else folder


@pytest.mark.parametrize(("seed", "form"), list(enumerate(FORMS)))
def test_the_device_runs_and_trains_with_the_weights(
    seed: int, form: str, traced: Network, tmp_path: Path
) -> None:
    network = reference(seed)
    load_sharded_checkpoint(traced, saved(network, tmp_path / "saved", form))
    assert not any(p.has_data for p in traced.inner[0].parameters())  # type: ignore[union-attr]
    assert torch.equal(
        SESSION.buffer_dict["network__inner__1__running_mean"].sn_data,
        network.inner[1].running_mean,
    )  # type: ignore[union-attr, arg-type]
    (loss, _) = SESSION.run((samba.from_torch_tensor(X, name="x"),), traced.output_tensors)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    expected = network(X)[0]
    expected.backward()
    optimizer.step()
    # Products of six float32 numbers, added in another order.
    torch.testing.assert_close(samba.to_torch(loss), expected.detach(), rtol=1e-5, atol=1e-6)
    for name, parameter in traced.named_parameters():
        torch.testing.assert_close(
            parameter.sn_data, network.get_parameter(name).detach(), rtol=1e-5, atol=1e-6
        )


def test_keys_of_the_inner_part_and_of_nothing(
    traced: Network, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = reference()
    state = {key.removeprefix("inner."): value for key, value in network.state_dict().items()}
    state["rotary.inv_freq"] = torch.ones(2)
    torch.save(state, tmp_path / "pytorch_model.bin")
    with caplog.at_level(logging.WARNING, "samba_onnx.sambaflow"):
        load_sharded_checkpoint(traced, tmp_path)
    assert "1 tensors that Network does not have: rotary.inv_freq" in caplog.text
    for name, parameter in traced.named_parameters():
        assert torch.equal(parameter.sn_data, network.get_parameter(name))


def test_other_types_are_converted_where_that_is_asked_for(traced: Network, tmp_path: Path) -> None:
    network = reference().bfloat16()
    folder = saved(network, tmp_path / "saved")
    with pytest.raises(
        UsageError, match=r"is torch\.bfloat16, and .* is torch\.float32: .*ignore_"
    ):
        load_sharded_checkpoint(traced, folder)
    load_sharded_checkpoint(traced, folder, ignore_dtype_mismatch=True)
    for name, parameter in traced.named_parameters():
        assert torch.equal(parameter.sn_data, network.get_parameter(name).float())


def test_checkpoints_of_other_models_are_refused(traced: Network, tmp_path: Path) -> None:
    state = reference().state_dict()
    torch.save({k: v for k, v in state.items() if "0.bias" not in k}, tmp_path / "some.bin")
    with pytest.raises(
        ModelFileError, match=r"some\.bin: has no inner\.0\.bias, which Network has"
    ):
        load_sharded_checkpoint(traced, tmp_path / "some.bin")
    torch.save(state | {"inner.0.bias": torch.ones(7)}, tmp_path / "long.bin")
    torch.save([1], tmp_path / "list.bin")
    with pytest.raises(ModelFileError, match=r"list\.bin holds no state_dict"):
        load_sharded_checkpoint(traced, tmp_path / "list.bin")
    with pytest.raises(ModelFileError, match=r"inner\.0\.bias has shape \[7\], and .* has \[6\]"):
        load_sharded_checkpoint(traced, tmp_path / "long.bin")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "is no index"),
        ("{", "is no index"),
        ('{"weight_map": {}}', "names files"),
        (json.dumps({"weight_map": {"a": "../model.safetensors"}}), "do not lie beside it"),
        (
            json.dumps({"weight_map": {"a": "none.safetensors"}}),
            "none.safetensors: cannot open this checkpoint",
        ),
        (json.dumps({"weight_map": {"a": "text.bin"}}), "text.bin: is no file of torch.save"),
    ],
)
def test_files_that_are_no_checkpoint_are_refused(
    content: str, words: str, traced: Network, tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError, match="no checkpoint is there; give a folder with one of"):
        load_sharded_checkpoint(traced, tmp_path)
    (tmp_path / "text.bin").write_text("nothing of torch's")
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelFileError, match=words):
        load_sharded_checkpoint(traced, tmp_path)


def test_a_model_that_was_not_traced_has_no_device(tmp_path: Path) -> None:
    SESSION.reset()
    folder = saved(reference(), tmp_path / "saved")
    with pytest.raises(NoDeviceError):
        load_sharded_checkpoint(Network(), folder)


def test_replicas_train_from_a_checkpoint_that_all_of_them_load(tmp_path: Path) -> None:
    """Three, so that rings are cut into unequal chunks; other weights on one of them are refused."""
    program: Any = importlib.import_module("tests.sambaflow.replicas_program")
    for seed, name in enumerate(("saved", "other")):
        saved(reference(seed), tmp_path / name, "safetensors shards")
    SESSION.reset()
    network = reference(9)
    samba.from_torch_model_(network)
    optimizer = samba.optim.SGD(network.parameters(), lr=0.1)
    inputs = (samba.from_torch_tensor(X, name="x"),)
    pef = SESSION.compile(network, inputs, optimizer, output=tmp_path / "m.pef", check=False)
    SESSION.reset()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node", "3", "-m", program.__name__, str(tmp_path)],
        env=clean() | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    ends = [torch.load(tmp_path / f"end.{rank}") for rank in range(3)]

    joined = reference(0)
    stepper = torch.optim.SGD(joined.parameters(), lr=0.1)
    for batch in program.batches(3):
        stepper.zero_grad()
        joined(batch)[0].backward()
        stepper.step()
    with load_pef(pef) as opened:
        manifest = opened.manifest
    plans = [
        [
            (move.symbol, move.bytes, move.direction.value)
            for move in reduction_transfers(manifest, manifest.graphs[0], 3, on_rdu=on_rdu)
        ]
        for on_rdu in (False, True)
    ]
    for end in ends:
        assert "different weights to the devices of replicas" in end["refusal"]
        assert end["transfers"] == (plans[0] + plans[1]) * (program.STEPS // 2)
        for name, value in joined.named_parameters():
            assert torch.equal(end["parameters"][name], ends[0]["parameters"][name]), name
            # Four steps on sums of 12 numbers in float32, in two orders.
            torch.testing.assert_close(
                end["parameters"][name], value.detach(), rtol=1e-5, atol=1e-6
            )
