"""Puts stages in an order of calls and states every copy that a run will make.

The rules, which the emulator implements from its own side:

* A value crosses the link at most once per direction and run.
* Graph inputs that a section reads are copied when the run begins, in graph-input order.
* What a fallback wrote is copied just before the first section that reads it, what a section wrote
  just before the first fallback that reads it, in the order of that stage's inputs.
* Graph outputs written on the RDU that are not on the host by then are copied after the last call,
  in graph-output order.
* Weights and constants that sections load are copied once, when the PEF is loaded.
* Residents stay on the device: what a fallback reads of them is copied from there once in a run,
  unless nothing changes it and the host knows it, and what it writes to one is copied there just
  after it.
* Argins are registers, set without a transfer.
* What an RDU sends in an exchange between all RDUs is one transfer, in the call of the exchange.
* A run of several mini-batches, in spatial mapping, copies those of an input or output in one go;
  what stays on the device is not copied between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from samba_onnx.errors import InternalError
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.planning.stages import StageInterface
from samba_onnx.passes.sharding.collectives import collective
from samba_onnx.passes.timing.node_work import value_bytes
from samba_onnx.pef.manifest import (
    Boundary,
    Call,
    Cause,
    Direction,
    Transfer,
)
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.dataflow import name_of


def schedule(first_stage: int, count: int) -> tuple[Call, ...]:
    """Return the calls of a graph.

    Args:
        first_stage: Id of the graph's first stage.
        count: Number of stages, which are in execution order already.

    Returns:
        One call per stage; call ids count from 0.
    """
    return tuple(Call(id=index, stage=first_stage + index) for index in range(count))


def fixed_bytes(value: ir.Value) -> int:
    """Return the size of a value that has a place on the device.

    Args:
        value: A value that a section reads or writes.

    Returns:
        Bytes.

    Raises:
        InternalError: Its type or shape is not fixed, although the target's table says so.
    """
    size = value_bytes(value)
    if size is None:
        raise InternalError(
            f"value {value.name!r} of type {value.type} and shape {value.shape} was planned for "
            "the RDU, which takes fixed types and shapes only: please report this"
        )
    return size


def load_transfers(
    weights: Iterable[tuple[ir.Value, Cause]], target: TargetSummary
) -> tuple[Transfer, ...]:
    """Return the copies made once, when the PEF is loaded.

    Args:
        weights: Initializers that sections load, and ``weight`` or ``constant`` for each.
        target: The device's figures.

    Returns:
        One transfer each, in the given order.
    """
    return tuple(
        _transfer(value, Direction.HOST_TO_RDU, cause, None, target) for value, cause in weights
    )


def run_transfers(
    roles: Roles, stages: Sequence[StageInterface], target: TargetSummary
) -> tuple[Transfer, ...]:
    """Return the copies that a run makes when it is given all inputs and asked for all outputs.

    Args:
        roles: What inputs and outputs of the graph are to the device.
        stages: The interfaces of its stages in execution order.
        target: The device's figures.

    Returns:
        Transfers in the order in which they happen.
    """
    transfers = _input_transfers(roles, stages, target)
    written = {value: call for call, stage in enumerate(stages) for value in stage.outputs}
    on_host = {v for v, call in written.items() if not stages[call].on_rdu}
    on_rdu = {v for v, call in written.items() if stages[call].on_rdu}
    residents = set(roles.residents)
    # Residents are there from the start, but for those that the graph writes: these are where their stage
    # runs.
    on_rdu |= residents.difference(written)
    on_host |= {value for value in residents if roles.known_to_host(value)}
    for call, stage in enumerate(stages):
        here = on_rdu if stage.on_rdu else on_host
        way = Direction.HOST_TO_RDU if stage.on_rdu else Direction.RDU_TO_HOST
        for value in stage.inputs:
            if (value in written or value in residents) and value not in here:
                # From here on it is on both sides: nobody who reads it later copies it again.
                here.add(value)
                transfers.append(_transfer(value, way, Cause.FALLBACK, call, target))
        # Behind the copies that its section waits for.
        exchange = collective(stage.group.nodes, target)
        if exchange is not None:
            seconds = target.exchange_seconds(exchange.bytes, exchange.steps)
            way, cause = Direction.RDU_TO_RDU, Cause.COLLECTIVE
            name = name_of(stage.outputs[0])
            transfers.append(Transfer(name, exchange.bytes, way, cause, seconds, call))
        for value in stage.outputs if not stage.on_rdu else ():
            if value in residents:
                on_rdu.add(value)
                up = Direction.HOST_TO_RDU
                transfers.append(_transfer(value, up, Cause.FALLBACK, call, target))
    for value in roles.outputs:
        if value in written and value not in on_host:
            on_host.add(value)
            way, call = Direction.RDU_TO_HOST, written[value]
            size = roles.copies(value) * fixed_bytes(value)
            transfers.append(_transfer(value, way, Cause.OUTPUT, call, target, size))
    return tuple(transfers)


def boundaries(
    stages: Sequence[StageInterface], calls: Sequence[Call], transfers: Sequence[Transfer]
) -> tuple[Boundary, ...]:
    """Return the pairs of stages between which values cross the link, with what is copied.

    Args:
        stages: The interfaces of the stages in execution order.
        calls: Their calls.
        transfers: The graph's run transfers, of which those with cause ``fallback`` are looked at.

    Returns:
        One for each pair of a writing and a reading stage with a copy between them, in the order
        of the first copy. Copies from and to residents lie between no two stages.
    """
    writer = {
        value.name: call.stage
        for call, stage in zip(calls, stages, strict=True)
        for value in stage.outputs
    }
    crossings: dict[tuple[int, int], list[Transfer]] = {}
    for transfer in transfers:
        if transfer.cause is Cause.FALLBACK and transfer.call is not None:
            before, after = writer.get(transfer.symbol), calls[transfer.call].stage
            # What a fallback writes to a resident is copied in its own call, and a resident may have no
            # writer here.
            if before is not None and before != after:
                crossings.setdefault((before, after), []).append(transfer)
    return tuple(
        Boundary(
            before=before,
            after=after,
            symbols=tuple(transfer.symbol for transfer in copies),
            bytes=sum(transfer.bytes for transfer in copies),
            seconds=sum(transfer.seconds for transfer in copies),
        )
        for (before, after), copies in crossings.items()
    )


def _input_transfers(
    roles: Roles, stages: Sequence[StageInterface], target: TargetSummary
) -> list[Transfer]:
    first_call: dict[ir.Value, int] = {}
    for call, stage in enumerate(stages):
        if stage.on_rdu:
            for value in stage.inputs:
                first_call.setdefault(value, call)
    way, cause = Direction.HOST_TO_RDU, Cause.INPUT
    return [
        _transfer(
            value, way, cause, first_call[value], target, roles.copies(value) * fixed_bytes(value)
        )
        for value in roles.inputs
        if value in first_call and value not in roles.argins
    ]


def _transfer(
    value: ir.Value,
    direction: Direction,
    cause: Cause,
    call: int | None,
    target: TargetSummary,
    size: int | None = None,
) -> Transfer:
    if size is None:
        size = fixed_bytes(value)
    return Transfer(
        symbol=name_of(value),
        bytes=size,
        direction=direction,
        cause=cause,
        seconds=target.transfer_seconds(size),
        call=call,
    )
