"""Runs: inputs by name, outputs in any choice, sections, and what is refused."""

from __future__ import annotations

import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import InputError, NotTracedError, ScheduleError, UsageError
from samba_onnx.runtime.requests import run_request
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.data_parallel import DataParallel
from samba_onnx.sessions.run_arguments import RunArguments
from samba_onnx.sessions.runner import Runner
from samba_onnx.sessions.shortcuts import Shortcut
from tests.sessions.conftest import Compiled, Parts

# Products of float32 numbers near 1, summed in another order: a few units in the last place.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def draw(compiled: Compiled, seed: int = 3) -> list[samba.SambaTensor]:
    torch.manual_seed(seed)
    return [samba.randn(*t.shape, name=t.sn_name) for t in compiled.inputs]


def check(results: tuple[samba.SambaTensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result.torch(), wanted, **TOLERANCE)


def test_a_run_computes_what_eager_torch_does(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    assert compiled.model.output_tensors is outputs
    for seed in range(4):  # the first runs prepare what later ones repeat
        inputs = draw(compiled, seed)
        results = session.run(inputs, outputs)
        check(results, compiled.expected(*inputs))
        assert [result.sn_name for result in results] == [output.sn_name for output in outputs]


def test_results_share_no_memory_with_the_device(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    inputs = draw(compiled)
    runs = [session.run(inputs, outputs) for _ in range(4)]
    for first, _ in runs:
        first.data.zero_()
    check(session.run(inputs, outputs), compiled.expected(*inputs))
    assert len({first.data_ptr() for first, _ in runs}) == len(runs)


def test_inputs_are_told_apart_by_name(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    features, shift = draw(compiled)
    expected = compiled.expected(features, shift)
    plain = {"features": features.torch(), "shift": shift.torch()}
    forms = [
        [shift, features],
        (None, shift, None, features),
        {"any": (features, [shift]), "none": None},
        samba.from_named_dict(plain),
        plain,
    ]
    for form in forms:
        session.run([samba.zeros(2, 4, name="features"), samba.zeros(3, name="shift")], ())
        check(session.run(form, outputs), expected)


def test_what_is_not_given_stays_as_it_is(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    check(session.run(None, outputs), compiled.expected(*compiled.inputs))
    features, shift = draw(compiled)
    session.run([features])
    check(session.run([shift], outputs), compiled.expected(features, shift))
    with session.expect_transfers(max_count=0):
        assert session.run() == ()


def test_outputs_may_be_chosen(session: SambaSession, compiled: Compiled) -> None:
    probabilities, logits = compiled.trace()
    inputs = draw(compiled)
    wanted = compiled.expected(*inputs)
    for _ in range(3):
        check(session.run(inputs, logits), wanted[1:])
        check(session.run(inputs, [logits, probabilities, logits]), (wanted[1], *wanted))
        check(session.run(inputs, [logits.sn_name]), wanted[1:])
    (weight,) = session.run(inputs, [compiled.model.outer.weight])
    torch.testing.assert_close(weight.torch(), compiled.model.outer.weight.data)


def test_the_model_may_be_given_first(session: SambaSession, compiled: Compiled) -> None:
    compiled.trace()
    inputs = draw(compiled)
    model = compiled.model
    results = session.run(model, tuple(inputs), model.output_tensors, section_types=["FWD"])
    check(results, compiled.expected(*inputs))
    check(
        session.run(model, tuple(inputs), model.output_tensors, {"lr": 0.1}),
        compiled.expected(*inputs),
    )


def test_sections_are_chosen_by_type_id_and_call(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    inputs = draw(compiled)
    expected = compiled.expected(*inputs)
    ids = session.get_section_ids()
    check(session.run(inputs, outputs, section_types=["fwd"]), expected)
    check(session.run(inputs, outputs, section_ids=ids), expected)
    check(session.run(inputs, outputs, section_ids=[ids, *ids]), expected)
    check(session.run(inputs, outputs, run_from_call_id=0, run_until_call_id=len(ids)), expected)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"section_ids": [0], "section_types": ["FWD"]}, UsageError, "give one of them"),
        ({"section_ids": [99]}, ScheduleError, "section 99 does not exist"),
        ({"section_ids": ["0"]}, UsageError, "give integers"),
        ({"section_types": ["OPT"]}, ScheduleError, "OPT does not exist .* which has FWD"),
        ({"section_types": ["FORWARD"]}, ScheduleError, "FORWARD does not .* which has FWD"),
        ({"section_types": [["FWD"]]}, ScheduleError, "does not exist"),
        ({"section_types": iter(["OPT"])}, ScheduleError, "OPT does not exist"),
        ({"run_from_call_id": 77}, ScheduleError, "call 77 does not exist"),
        ({"run_until_call_id": -1}, ScheduleError, "call -1 does not exist"),
        ({"graph_name": "backward"}, UsageError, "the PEF has forward"),
        ({"graph_name": ["forward"]}, UsageError, "the PEF has forward"),
        ({"data_parallel": True}, UsageError, "init_process_group"),
        ({"data_parallel_mode": "fast"}, UsageError, "normal, inorder, optimal"),
        ({"hyperparam_dict": {"lr": "high"}}, UsageError, "'lr' is str; give a number"),
        ({"hyperparam_dict": {"p": 1.5}}, UsageError, "from 0 to 1"),
        ({"output_tensors": ["loss"]}, UsageError, "output 'loss' does not exist"),
        ({"output_tensors": [torch.ones(1)]}, UsageError, "without a name"),
    ],
)
def test_what_makes_no_sense_is_refused(
    session: SambaSession,
    compiled: Compiled,
    arguments: dict[str, object],
    error: type[Exception],
    message: str,
) -> None:
    outputs = compiled.trace()
    with pytest.raises(error, match=message):
        session.run(draw(compiled), **arguments)
    # Nothing has changed on the device.
    check(session.run(None, outputs), compiled.expected(*compiled.inputs))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (samba.randn(2, 4, name="image"), "'image' does not exist; .*'features' tensor"),
        (samba.randn(2, 5, name="features"), r"\[2, 5\], compiled was tensor\(float\)\[2, 4\]"),
        (samba.randn(4, 2, name="features"), "give that shape and dtype"),
        (samba.ones(2, 4, dtype=torch.float64, name="features"), "torch.float64 of shape"),
        (samba.randn(2, 4), "has no name"),
        (torch.randn(2, 4), "has no name"),
        (3.0, "is 3.0, which is no tensor"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(
    session: SambaSession, compiled: Compiled, wrong: object, message: str
) -> None:
    outputs = compiled.trace()
    _, shift = draw(compiled)
    with pytest.raises(InputError, match=message):
        session.run([shift, wrong], outputs)
    check(session.run(None, outputs), compiled.expected(*compiled.inputs))


def test_repeated_runs_check_their_inputs_too(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    inputs = draw(compiled)
    for _ in range(3):
        session.run(inputs, outputs)
    for wrong in (samba.randn(4, 2, name="features"), samba.ones(2, 4, name="features").long()):
        with pytest.raises(InputError, match="'features' is torch"):
            session.run([wrong, inputs[1]], outputs)
    lazily = samba.SambaTensor(
        shape=(2, 4), name="features", materializer=lambda t: torch.full(t.shape, 2.0)
    )
    strided = samba.from_torch_tensor(torch.randn(4, 2).T, name="features")
    grown = samba.randn(2, 4, name="features").requires_grad_()
    for other in (lazily, strided, grown):
        results = session.run([other, inputs[1]], outputs)
        check(results, compiled.expected(samba.to_torch(other), inputs[1]))


def test_a_missing_input_is_named(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace(transfer_device=False)
    session.to_rdu(compiled.model)
    features, shift = draw(compiled)
    with pytest.raises(InputError, match="'shift' was never given"):
        session.run([features], outputs)
    check(session.run([features, shift], outputs), compiled.expected(features, shift))


def test_nothing_runs_before_it_was_traced(session: SambaSession, compiled: Compiled) -> None:
    with pytest.raises(NotTracedError, match="trace_graph"):
        session.run(compiled.inputs)
    session.reset(compiled.path)
    assert session.get_section_types() == {"FWD"}
    with pytest.raises(NotTracedError, match="a PEF that was not traced"):
        session.run(compiled.inputs)


def test_hyperparameters_that_a_program_lacks_are_ignored(
    session: SambaSession, compiled: Compiled
) -> None:
    outputs = compiled.trace()
    inputs = draw(compiled)
    numbers = {"lr": 0.1, "p": 0.5, "momentum": 0.9}
    check(session.run(inputs, outputs, numbers), compiled.expected(*inputs))


def test_a_runner_needs_no_session(parts: Parts, compiled: Compiled) -> None:
    runner = Runner(parts.program, parts.state, parts.profiler, DataParallel(parts.program))
    with pytest.raises(NotTracedError, match="no PEF"):
        runner.run(RunArguments(compiled.inputs, ()))
    outputs = parts.tracer.trace(compiled.model, compiled.inputs, pef=compiled.path)
    for _ in range(4):
        inputs = draw(compiled)
        check(runner.run(RunArguments(inputs, outputs)), compiled.expected(*inputs))
    (number,) = {call.stage for call in parts.program.manifest.graphs[0].calls}
    for options in (
        {"section_ids": number},
        {"section_types": "fwd"},
        {"section_types": {"FWD"}},
        {"section_types": None},
    ):
        inputs = draw(compiled)
        check(runner.run(RunArguments(inputs, outputs, **options)), compiled.expected(*inputs))
    # The number 0 is a section, not the wish for all.
    with pytest.raises(ScheduleError, match="no call"):
        runner.run(RunArguments(inputs, outputs, section_ids=0, until_call=0))


def test_shortcuts_hang_on_the_prepared_runs_of_the_device(
    parts: Parts, compiled: Compiled
) -> None:
    runner = Runner(parts.program, parts.state, parts.profiler, DataParallel(parts.program))
    outputs = parts.tracer.trace(compiled.model, compiled.inputs, pef=compiled.path)
    names = tuple(output.sn_name for output in outputs)
    request = run_request("forward", ["features", "shift"], names)
    runs = parts.program.required_device().runs
    assert runs.ready(request) is None
    for _ in range(2):
        runner.run(RunArguments(list(draw(compiled)), outputs))
    prepared = runs.ready(request)
    assert prepared is not None
    shortcut = prepared.shortcut
    assert isinstance(shortcut, Shortcut)
    inputs = list(draw(compiled))
    check(runner.run(RunArguments(inputs, outputs)), compiled.expected(*inputs))
    # The section 0 alone is another run.
    count = len(runs)
    check(runner.run(RunArguments(inputs, outputs, section_ids=0)), compiled.expected(*inputs))
    assert len(runs) == count + 1
    # Marks that changed are those of the result.
    outputs[0].sn_region_name = "elsewhere"
    results = runner.run(RunArguments(inputs, outputs))
    assert results[0].sn_region_name == "elsewhere"
    outputs[0].sn_region_name = outputs[0].sn_name
    # Profiling takes the long way.
    parts.profiler.start_profile()
    runner.run(RunArguments(inputs, outputs))
    assert parts.profiler.names() == ("PyRT_RUN", "SAMBA_SESSION_RUN")
    parts.profiler.stop_profile()
    # Another place of values, another replay: its shortcut is made anew.
    parts.program.required_device().write("features", inputs[0].torch().numpy())
    assert runs.ready(request) is None
    for _ in range(2):
        check(runner.run(RunArguments(inputs, outputs)), compiled.expected(*inputs))
    assert prepared.shortcut is not shortcut
