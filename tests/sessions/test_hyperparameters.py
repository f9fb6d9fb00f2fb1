"""What a run sends to the device: numbers that persist, rates of dropouts, and seeds that no two runs share."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.optim import SGD, optimizer_record
from samba_onnx.pef.manifest import Argin
from samba_onnx.sessions.hyperparameters import NO_ARGINS, NO_NUMBERS, Hyperparameters
from samba_onnx.sessions.optimizer_steps import OptimizerSteps

RATES = ("one__rate", "two__rate")
SEEDS = ("one__seed", "two__seed")
DEFAULT = 0.375


def argins(*names: str) -> list[Argin]:
    return [Argin(name, "tensor(float)", DEFAULT, (0,)) for name in names]


def dropouts() -> Hyperparameters:
    """Return those of a program with two dropouts."""
    return Hyperparameters(argins(*RATES, *SEEDS))


def sent(of: Hyperparameters, numbers: Any = (), **how: Any) -> dict[str, Any]:
    """Return what a run sends that goes forward through all dropouts, unless it is told otherwise."""
    run = {"train": True, "forward": (*RATES, *SEEDS), "step": False, **how}
    return dict(of.argins(of.checked(dict(numbers)), **run))


def ran(of: Hyperparameters, numbers: Any = (), **how: Any) -> dict[str, Any]:
    """Return what a run sends that succeeds."""
    result = sent(of, numbers, **how)
    forward, step = bool(how.get("forward", True)), how.get("step", False)
    of.keep(of.checked(dict(numbers)), forward=forward, step=step, batches=how.get("batches", 0))
    return result


def sgd(count: int = 1) -> OptimizerSteps:
    weights = [nn.Parameter(torch.ones(2)) for _ in range(count)]
    return OptimizerSteps(
        [
            optimizer_record(SGD([weight], lr=0.5), index, {f"w{index}": weight})
            for index, weight in enumerate(weights)
        ]
    )


def test_names_are_those_of_the_program() -> None:
    of = dropouts()
    assert of.names == (*RATES, *SEEDS)
    assert (of.rate_names, of.seed_names, of.rounding_names) == (RATES, SEEDS, ())
    assert Hyperparameters().argins({}, train=True, forward=(), step=True) is NO_ARGINS


def test_the_nearest_rate_counts() -> None:
    """Its own before that of all dropouts, before the one that was compiled; none where nothing drops."""
    of = dropouts()
    assert [sent(of)[name] for name in RATES] == [DEFAULT, DEFAULT]
    assert [sent(of, {"p": 0.5})[name] for name in RATES] == [0.5, 0.5]
    both = {"p": 0.5, "one__rate": 0.25}
    assert [sent(of, both)[name] for name in RATES] == [0.25, 0.5]
    assert [sent(of, both, train=False)[name] for name in RATES] == [0.0, 0.0]
    # A run that failed sets nothing, one that succeeded sets it until another one does.
    assert sent(of)["one__rate"] == DEFAULT
    ran(of, both)
    assert [sent(of)[name] for name in RATES] == [0.25, 0.5]
    ran(of, {"one__rate": 1})
    assert [sent(of)[name] for name in RATES] == [1.0, 0.5]


def test_only_what_a_run_goes_forward_through_is_sent() -> None:
    of = dropouts()
    assert sorted(sent(of, forward=("one__rate", "two__seed"))) == ["one__rate", "two__seed"]
    assert sent(of, forward=(), step=True) == {}


def test_every_run_draws_other_masks_and_a_reset_draws_them_again() -> None:
    of = dropouts()
    drawn = [ran(of) for _ in range(50)]
    seeds = [run[name] for run in drawn for name in SEEDS]
    assert len(set(seeds)) == 100
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in seeds)
    # Some use the highest bit that there is: none is thrown away.
    assert max(seeds) >= 2**30
    of.reset_random()
    assert [ran(of) for _ in range(50)] == drawn
    # A run that goes backward alone has the masks of its forward: nothing is drawn for it.
    of.reset_random()
    ran(of, forward=())
    assert ran(of) == drawn[0]


def test_mini_batches_draw_as_runs_do() -> None:
    of, other = dropouts(), dropouts()
    singles = [ran(of) for _ in range(4)]
    first, rest = ran(other, batches=3), ran(other, batches=1)
    for name in SEEDS:
        assert [*first[name], *rest[name]] == [run[name] for run in singles]
    assert first["one__rate"] == DEFAULT
    assert of.steps_done[:2] == other.steps_done[:2] == (4, 4)


def test_replicas_draw_masks_of_their_own() -> None:
    of = dropouts()
    drawn = [sent(of, replica=replica)["one__seed"] for replica in range(4)]
    assert len(set(drawn)) == 4
    assert drawn[0] == sent(of)["one__seed"]


def test_a_seed_that_was_given_stays() -> None:
    of = dropouts()
    assert ran(of, {"one__seed": 7.0})["one__seed"] == 7
    assert isinstance(sent(of)["one__seed"], int)
    assert ran(of)["one__seed"] == ran(of)["one__seed"] == 7


def test_the_environment_seeds_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    def first() -> Any:
        return sent(dropouts())["one__seed"]

    monkeypatch.setenv("SAMBA_SEED", "5")
    five = first()
    monkeypatch.setenv("SAMBA_SEED", "6")
    assert first() != five
    monkeypatch.delenv("SAMBA_SEED")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        assert first() == five
    monkeypatch.setenv("SAMBA_SEED", "x")
    with pytest.raises(UsageError, match="SAMBA_SEED is 'x'; give an integer"):
        dropouts()


def test_a_step_rounds_by_seeds_that_all_replicas_share(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "optimizer0__rounding_seed"
    scalars = ("lr", "weight_decay", "momentum", "one_minus_dampening")
    program = argins(name, *(f"optimizer0__group0__{scalar}" for scalar in scalars))
    monkeypatch.setenv("SAMBA_SEED", "5")
    of = Hyperparameters(program, sgd())
    assert name not in sent(of, step=False)
    monkeypatch.setenv("SAMBA_SEED", "6")
    other = Hyperparameters(program, sgd())
    assert sent(other, step=True)[name] != sent(of, step=True)[name]
    other.round_as(of.rounding_seed)
    monkeypatch.setenv("SAMBA_SEED", "5")
    seeds = []
    for _ in range(3):
        seed = ran(of, step=True)[name]
        assert ran(other, step=True, replica=3)[name] == seed
        seeds.append(seed)
    assert len(set(seeds)) == 3
    # One that goes on with the state of another draws what that one would.
    late = Hyperparameters(program, sgd())
    late.resume_from(of.steps_done)
    assert late.steps_done == of.steps_done
    after = [ran(of, step=True)[name] for _ in range(2)]
    assert ran(late, step=True, batches=2)[name] == after
    assert sent(of, {name: 9}, step=True)[name] == 9


def test_gradients_round_by_runs_since_the_last_step() -> None:
    name = "gradients__rounding_seed"
    of, other = Hyperparameters(argins(name)), Hyperparameters(argins(name))
    seeds = [ran(of, forward=("x",))[name] for _ in range(3)]
    assert len(set(seeds)) == 3
    assert ran(other, forward=("x",), batches=3)[name] == seeds
    assert name not in sent(of, forward=(), step=True)
    assert sent(of, forward=("x",), replica=1)[name] != sent(of, forward=("x",))[name]
    assert of.steps_done[:2] == (3, 3)
    ran(of, forward=("x",), step=True)
    assert of.steps_done[:2] == (4, 0)


def test_numbers_are_checked_once() -> None:
    of = dropouts()
    numbers: dict[Any, Any] = {"p": 0.5, "lr": 1}
    checked = of.checked(numbers)
    assert checked == {"p": 0.5, "lr": 1.0}
    assert of.checked({"p": 0.5, "lr": 1}) is checked
    numbers["p"] = 0.25  # the caller's own, which may change
    assert of.checked(numbers) == {"p": 0.25, "lr": 1.0}
    assert of.checked({}) is NO_NUMBERS
    # A tensor may change in place, a list has two numbers.
    rate = torch.tensor(0.5)
    assert of.checked({"p": rate}) == {"p": 0.5}
    rate.fill_(0.75)
    assert of.checked({"p": rate}) == {"p": 0.75}
    assert of.checked({"betas": [1, 2.5]}) == {"betas": (1.0, 2.5)}


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([0.5], r"^hyperparam_dict is list; give numbers by name, as \{'lr': 0.1\}$"),
        ({"lr": "x"}, "^hyperparameter 'lr' is str; give a number$"),
        ({"lr": None}, "^hyperparameter 'lr' is NoneType; give a number$"),
        ({"p": 1.5}, "^dropout rate 'p' is 1.5; give one from 0 to 1$"),
        ({"p": -0.5}, "^dropout rate 'p' is -0.5;"),
        ({"two__rate": 2}, "^dropout rate 'two__rate' is 2.0;"),
        ({"p": [0.5, 0.5]}, r"^dropout rate 'p' is \(0.5, 0.5\);"),
    ],
)
def test_what_is_no_number_is_refused(numbers: Any, message: str) -> None:
    of = dropouts()
    for _ in range(2):
        with pytest.raises(UsageError, match=message):
            of.checked(numbers)
    assert [of.checked({"p": end}) for end in (0, 1)] == [{"p": 0.0}, {"p": 1.0}]


TOLD: list[tuple[Hyperparameters, str, str]] = [
    (dropouts(), "one_rate", "give 'one__rate', or leave it out"),
    (dropouts(), "zzz", "give 'p', 'one__rate', 'two__rate', 'one__seed', 'two__seed', or leave"),
    (Hyperparameters(argins("x")), "zzz", "it has none; leave it out"),
    (Hyperparameters(argins("x"), sgd()), "momentums", "give 'momentum', or leave it out"),
]


@pytest.mark.parametrize(("of", "key", "advice"), TOLD)
def test_a_key_that_sets_nothing_is_told_of_once(
    of: Hyperparameters, key: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for value, other in itertools.product((1.0, 2.0), of.names[:1]):
            of.checked({"p": 0.5, other: 0.5, key: value})
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith(f"hyperparam_dict has {key!r}, which sets nothing of this program: ")
    assert advice in text


def test_scalars_of_a_step_are_those_of_its_optimizers() -> None:
    """Those that the program has; what a run sets by the name of an argin counts more."""
    scalars = dict(sgd().argins({}, step=True))
    momentum = "optimizer0__group0__momentum"
    dampened = "optimizer0__group0__one_minus_dampening"
    of = Hyperparameters(argins(*scalars), sgd())
    run: dict[str, Any] = {"train": True, "forward": (), "step": True}
    assert of.argins(NO_NUMBERS, **run) == scalars
    assert of.argins(NO_NUMBERS, **run) is of.argins(NO_NUMBERS, **run)
    assert sent(of, step=True, batches=2) == {name: [one, one] for name, one in scalars.items()}
    for name in (momentum, dampened):
        assert sent(of, {name: 0.25}, step=True) == {**scalars, name: 0.25}
    assert sent(Hyperparameters(argins(momentum), sgd()), step=True) == {momentum: 0.0}
    beside = Hyperparameters(argins(*scalars, "one__rate"), sgd())
    assert sent(beside, step=True) == {**scalars, "one__rate": DEFAULT}
    assert sent(Hyperparameters(argins("one__rate"))) == {"one__rate": DEFAULT}


def test_each_optimizer_rounds_by_its_own_steps_and_gradients_by_the_most() -> None:
    names = ["optimizer0__rounding_seed", "optimizer1__rounding_seed", "gradients__rounding_seed"]

    def after(*steps: int) -> list[Any]:
        of = Hyperparameters(argins(*names), sgd(2))
        of.resume_from((0, 0, [(0,), (0,)], [*steps]))
        result = sent(of, forward=("x",), step=True)
        return [result[name] for name in names]

    one, other, both = after(3, 5), after(3, 6), after(4, 6)
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, False]
    assert [a == b for a, b in zip(other, both, strict=True)] == [False, True, True]
    # Mini-batches that make a step each draw what runs with a step each would.
    runs, batches = (Hyperparameters(argins(*names), sgd(2)) for _ in range(2))
    singles = [ran(runs, forward=("x",), step=True) for _ in range(3)]
    together = ran(batches, forward=("x",), step=True, batches=3)
    assert together == {name: [run[name] for run in singles] for name in names}
