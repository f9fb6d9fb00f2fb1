"""Programs that are written twice: once for torch, once in the words of the session, without the trainer."""

from __future__ import annotations

import copy
import io
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import samba_onnx as samba
from samba_onnx.sambaloader import SambaLoader
from tests.training_programs.machines import Device, Machine, Weights


class Digits(nn.Module):
    """A LeNet of the size of a thumb; returns the loss and the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(36, 3)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.flatten(functional.avg_pool2d(self.conv(image).tanh(), 2), 1)
        logits = self.fc(x)
        return self.criterion(logits, label), logits


def digits(count: int) -> tuple[Tensor, Tensor]:
    label = torch.randint(3, (count,))
    return torch.randn(count, 1, 8, 8) + label.view(-1, 1, 1, 1), label


def fetched(model: nn.Module, *optimizers: torch.optim.Optimizer) -> Weights:
    samba.session.to_cpu(model, list(optimizers))
    return {name: samba.to_torch(value).clone() for name, value in model.state_dict().items()}


def state(model: nn.Module) -> Weights:
    return {name: value.clone() for name, value in model.state_dict().items()}


def epochs_of_a_loader(on: Machine) -> Weights:
    """A DataLoader that is shuffled, a SambaLoader around it, Adam, and evaluation after each epoch."""
    images, labels = digits(40)
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(images, labels), 8, shuffle=True, generator=order)
    model = Digits()
    on.begin(model)
    if isinstance(on, Device):
        samba.from_torch_model_(model)
        optimizer = samba.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.99), eps=1e-3)
        inputs = (
            samba.randn(8, 1, 8, 8, name="image", batch_dim=0),
            samba.randint(3, (8,), name="label", batch_dim=0),
        )
        pef = samba.session.compile(model, inputs, optimizer, output=on.folder / "d.pef")
        traced = samba.utils.trace_graph(model, inputs, optimizer, pef=pef)
        for _ in range(4):
            for image, label in SambaLoader(loader, ["image", "label"]):
                loss, _ = samba.session.run([image, label], traced, hyperparam_dict={"lr": 0.02})
                on.note(samba.to_torch(loss))
            test = samba.from_named_dict({"image": images[:8], "label": labels[:8]})
            (logits,) = samba.session.run(test, traced[1], section_types=["FWD"])
            on.note(samba.to_torch(logits).mean())
        return fetched(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, betas=(0.9, 0.99), eps=1e-3)
    for _ in range(4):
        for image, label in loader:
            optimizer.zero_grad()
            loss, _ = model(image, label)
            loss.backward()
            optimizer.step()
            on.note(loss)
        on.note(model(images[:8], labels[:8])[1].mean())
    return state(model)


def one_run_of_many_steps(on: Machine) -> Weights:
    """``mapping="spatial"``: ten mini-batches in a run, two runs."""
    model, (images, labels) = Digits(), digits(80)
    on.begin(model)
    if isinstance(on, Device):
        samba.from_torch_model_(model)
        optimizer = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        inputs = samba.randn(4, 1, 8, 8, name="image"), samba.randint(3, (4,), name="label")
        pef = samba.session.compile(
            model,
            inputs,
            optimizer,
            output=on.folder / "d.pef",
            config_dict={"mapping": "spatial", "num_spatial_batches": 10},
        )
        whole = samba.randn(40, 1, 8, 8, name="image"), samba.randint(3, (40,), name="label")
        traced = samba.utils.trace_graph(model, whole, optimizer, pef=pef, mapping="spatial")
        for half in (slice(40), slice(40, 80)):
            named = samba.from_named_dict({"image": images[half], "label": labels[half]})
            losses, _ = samba.session.run(named, traced)
            on.note(samba.to_torch(losses))
        return fetched(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for image, label in zip(images.split(4), labels.split(4), strict=True):
        loss = model(image, label)[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        on.note(loss)
    return state(model)


def accumulated(on: Machine) -> Weights:
    """Four micro-batches a step, the gradient of the loss a quarter, clipped by the norm of all."""
    model, (images, labels) = Digits(), digits(80)
    on.begin(model)
    parts = list(zip(images.split(4), labels.split(4), strict=True))
    if isinstance(on, Device):
        samba.from_torch_model_(model)
        optimizer = samba.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, max_grad_norm=0.5)
        inputs = samba.randn(4, 1, 8, 8, name="image"), samba.randint(3, (4,), name="label")
        pef = samba.session.compile(
            model, inputs, optimizer, output=on.folder / "d.pef", gradient_accumulation=True
        )
        traced = samba.utils.trace_graph(model, inputs, optimizer, pef=pef)
        traced[0].sn_grad = torch.tensor(0.25)
        for number, (image, label) in enumerate(parts):
            if number % 4 == 0:
                samba.session.run(section_types=["zerograd"])
            named = samba.from_named_dict({"image": image, "label": label})
            loss, _ = samba.session.run(named, traced, section_types=["fwd", "bckwd"])
            on.note(samba.to_torch(loss))
            if number % 4 == 3:
                samba.session.run(section_types=["gradnorm", "opt"])
        return fetched(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.01, eps=1e-3, betas=(0.9, 0.997), weight_decay=0
    )
    for number, (image, label) in enumerate(parts):
        loss = model(image, label)[0]
        (loss / 4).backward()
        on.note(loss)
        if number % 4 == 3:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    return state(model)


def loss_on_the_host(on: Machine) -> Weights:
    """The model returns logits; loss and its gradient are torch's, written to ``sn_grad``."""
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    on.begin(model)

    def host_loss(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.detach().requires_grad_()
        loss = functional.multi_margin_loss(logits, label) + logits.logsumexp(1).mean() * 0.1
        loss.backward()
        return loss.detach(), logits.grad

    batches = [(torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(20)]
    if isinstance(on, Device):
        samba.from_torch_model_(model)
        optimizer = samba.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        inputs = (samba.randn(8, 6, name="input"),)
        pef = samba.session.compile(model, inputs, optimizer, output=on.folder / "h.pef")
        (logits,) = samba.utils.trace_graph(model, inputs, optimizer, pef=pef)
        for x, label in batches:
            named = [samba.from_torch_tensor(x, name="input")]
            (made,) = samba.session.run(named, [logits], section_types=["fwd"])
            loss, slope = host_loss(samba.to_torch(made), label)
            logits.sn_grad = slope
            samba.session.run(section_types=["bckwd", "opt"])
            on.note(loss)
        return fetched(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for x, label in batches:
        optimizer.zero_grad()
        made = model(x)
        loss, slope = host_loss(made, label)
        made.backward(slope)
        optimizer.step()
        on.note(loss)
    return state(model)


def schedule_of_torch(on: Machine) -> Weights:
    """OneCycleLR, which moves momenta too, over whichever optimizer there is."""
    model, batches = Digits(), [digits(6) for _ in range(20)]
    on_device = isinstance(on, Device)
    on.begin(model)
    if on_device:
        samba.from_torch_model_(model)
    optim: Any = samba.optim if on_device else torch.optim
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.8)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=21)
    if on_device:
        inputs = samba.randn(6, 1, 8, 8, name="image"), samba.randint(3, (6,), name="label")
        pef = samba.session.compile(model, inputs, optimizer, output=on.folder / "d.pef")
        traced = samba.utils.trace_graph(model, inputs, optimizer, pef=pef)
    for image, label in batches:
        if on_device:
            named = samba.from_named_dict({"image": image, "label": label})
            loss = samba.to_torch(samba.session.run(named, traced)[0])
        else:
            optimizer.zero_grad()
            loss, _ = model(image, label)
            loss.backward()
            optimizer.step()
        schedule.step()
        on.note(loss)
    return fetched(model) if on_device else state(model)


def resumed(on: Machine) -> Weights:
    """Saved after ten steps, loaded into a fresh model and optimizer, traced again, and gone on with."""
    batches = [digits(6) for _ in range(20)]
    model = Digits()
    on.begin(model)
    if isinstance(on, Device):
        fresh = copy.deepcopy(model)
        saved, pef = io.BytesIO(), None
        inputs = samba.randn(6, 1, 8, 8, name="image"), samba.randint(3, (6,), name="label")
        for part in (batches[:10], batches[10:]):
            samba.from_torch_model_(model)
            optimizer = samba.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.99), eps=1e-3)
            if saved.getvalue():
                saved.seek(0)
                content = torch.load(saved)
                model.load_state_dict(content["model"])
                optimizer.load_state_dict(content["optimizer"])
            pef = pef or samba.session.compile(model, inputs, optimizer, output=on.folder / "d.pef")
            traced = samba.utils.trace_graph(model, inputs, optimizer, pef=pef)
            for image, label in part:
                named = samba.from_named_dict({"image": image, "label": label})
                on.note(samba.to_torch(samba.session.run(named, traced)[0]))
            last = fetched(model, optimizer)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
            model = fresh
        return last
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.99), eps=1e-3)
    for image, label in batches:
        optimizer.zero_grad()
        loss = model(image, label)[0]
        loss.backward()
        optimizer.step()
        on.note(loss)
    return state(model)


def split_learning(on: Machine) -> Weights:
    """The client is torch's on both sides; the server's input requires a gradient, which goes back."""
    client = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
    mine = torch.optim.SGD(client.parameters(), lr=0.2)

    class Server(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 3)

        def forward(self, smashed: Tensor, label: Tensor) -> Tensor:
            return functional.cross_entropy(self.head(smashed), label)

    server = Server()
    on.begin(server)
    batches = [(torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(20)]
    if isinstance(on, Device):
        samba.from_torch_model_(server)
        optimizer = samba.optim.SGD(server.parameters(), lr=0.1)
        smashed = samba.randn(8, 8, name="smashed", requires_grad=True)
        inputs = smashed, samba.randint(3, (8,), name="label")
        pef = samba.session.compile(server, inputs, optimizer, output=on.folder / "s.pef")
        traced = samba.utils.trace_graph(server, inputs, optimizer, pef=pef)
    else:
        optimizer = torch.optim.SGD(server.parameters(), lr=0.1)
    for x, label in batches:
        mine.zero_grad()
        sent = client(x)
        if isinstance(on, Device):
            named = samba.from_named_dict({"smashed": sent.detach(), "label": label})
            loss = samba.to_torch(samba.session.run(named, traced)[0])
            sent.backward(samba.to_torch(smashed.sn_grad))
        else:
            optimizer.zero_grad()
            loss = server(sent, label)
            loss.backward()
            optimizer.step()
        mine.step()
        on.note(loss)
    kept = fetched(server) if isinstance(on, Device) else state(server)
    return kept | {f"client.{name}": value for name, value in client.state_dict().items()}


def pretrained_then_tuned(on: Machine) -> Weights:
    """An autoencoder first; its encoder then goes into a classifier, which is compiled and traced anew."""

    class Auto(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            return functional.mse_loss(self.decoder(self.encoder(x).tanh()), x)

    class Tuned(nn.Module):
        def __init__(self, encoder: nn.Module) -> None:
            super().__init__()
            self.encoder, self.head = encoder, nn.Linear(4, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return functional.cross_entropy(self.head(self.encoder(x).tanh()), y)

    first = Auto()
    second = Tuned(first.encoder)
    for model in (first, second):
        batch = {"x": torch.randn(8, 6)}
        batch |= {} if model is first else {"y": torch.randint(3, (8,))}
        trainer = on.trainer(model, batch, lambda optim, m: optim.SGD(m.parameters(), lr=0.2))
        for _ in range(10):
            batch["x"] = torch.randn(8, 6)
            on.note(trainer.step(batch)[0])
        # What the device has is fetched before the next trace takes the encoder from the host.
        kept = trainer.weights()
    return kept


def early_stopping(on: Machine) -> Weights:
    """The best weights on a validation set are kept, and put back at the end by ``load_state_dict``."""
    model = nn.Sequential()
    model.add_module("body", nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))

    class Fit(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            return {"loss": (self.net(x) - y).abs().mean(), "n": x.square().sum()}

    x = torch.randn(12, 4)
    y, held_out = x[:, :1] * 2, {"x": torch.randn(12, 4), "y": torch.randn(12, 1)}
    fit = Fit(model)
    trainer = on.trainer(fit, {"x": x, "y": y}, lambda optim, m: optim.SGD(m.parameters(), lr=0.1))
    best, kept = float("inf"), {}
    for _ in range(20):
        on.note(trainer.step({"x": x, "y": y})[0])
        score = float(trainer.forward(held_out)[0])
        if score < best:
            best, kept = score, trainer.weights()
    fit.load_state_dict(kept)
    if isinstance(on, Device):
        samba.session.to_rdu(fit)
    on.note(trainer.forward({"x": x, "y": y})[0])
    return trainer.weights()


PROGRAMS = [
    epochs_of_a_loader,
    one_run_of_many_steps,
    accumulated,
    loss_on_the_host,
    schedule_of_torch,
    resumed,
    split_learning,
    pretrained_then_tuned,
    early_stopping,
]
