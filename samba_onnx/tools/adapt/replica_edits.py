"""Programs of several replicas: SambaFlow's command line starts them, by ``--data-parallel``."""

from __future__ import annotations

import libcst as cst

from samba_onnx.tools.adapt.edits import add_arguments
from samba_onnx.tools.adapt.name_units import argument, attribute_name, unit_of, walk
from samba_onnx.tools.adapt.port import ProgramPort

_GROUPS = frozenset(
    {"torch.distributed.init_process_group", "torch.distributed.destroy_process_group"}
)
_OURS = {
    "torch.distributed.get_rank": "get_rank()",
    "torch.distributed.get_world_size": "get_world_size()",
}
_SAMPLERS = frozenset(
    {
        "torch.utils.data.DistributedSampler",
        "torch.utils.data.distributed.DistributedSampler",
    }
)
_LAUNCHERS = ("torch.multiprocessing.", "torch.multiprocessing.spawn")


class ReplicaEdits:
    """Plans the change of what starts replicas and tells them apart."""

    def __init__(self, port: ProgramPort) -> None:
        self.port = port

    def plan(self) -> None:
        """Plan all edits."""
        for call in self.port.source.calls:
            name = self.port.source.imported(call.func)
            if name in _GROUPS:
                self._group(call)
            elif name in _OURS:
                self._rewrite(call, f"{self._utils(call)}.{_OURS[name]}")
            elif name in _SAMPLERS and argument(call, "rank", 2) is None:
                self._sampler(call)
            elif name.startswith(_LAUNCHERS) and attribute_name(call.func) == "spawn":
                self.port.points.add(
                    call,
                    "spawned-replicas",
                    "the program starts its replicas itself",
                    instead="call the function once, and start `mpirun -np N python PROGRAM run --data-parallel`",
                )
        self._unwrap()

    def _utils(self, call: cst.Call) -> str:
        return self.port.names.utils(self.port.source.file(call))

    def _group(self, call: cst.Call) -> None:
        statement = self.port.source.statement(call)
        line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        if isinstance(line, cst.Expr) and line.value is call:
            what = "the command line joins the group of replicas, by --data-parallel"
            self.port.edits.remove(statement, "replicas", what)

    def _rewrite(self, call: cst.Call, code: str) -> None:
        self.port.edits.rewrite(
            call, lambda _: cst.parse_expression(code), "replicas", "SambaFlow knows its replicas"
        )

    def _sampler(self, call: cst.Call) -> None:
        utils = self._utils(call)

        def complete(node: cst.BaseExpression) -> cst.BaseExpression:
            assert isinstance(node, cst.Call)
            stated = {"num_replicas": f"{utils}.get_world_size()", "rank": f"{utils}.get_rank()"}
            return add_arguments(node, **stated)

        what = "without --data-parallel there is one replica, and no group to ask"
        self.port.edits.rewrite(call, complete, "replicas", what)

    def _unwrap(self) -> None:
        """Write ``model`` for ``model.module``: the wrapper is gone."""
        wrapped = {
            node.targets[0].target
            for node in self.port.source.nodes
            if isinstance(node, cst.Assign) and self._is_wrapping(node.value)
        }
        units = {unit_of(one) for one in wrapped}
        for node in self.port.source.nodes:
            is_inner = isinstance(node, cst.Attribute) and node.attr.value == "module"
            if is_inner and isinstance(node, cst.Attribute) and unit_of(node.value) in units:
                self.port.edits.rewrite(node, _owner, "replicas", "the module is not wrapped")

    def _is_wrapping(self, value: cst.BaseExpression) -> bool:
        names = (
            self.port.source.imported(node.func)
            for node in walk(value)
            if isinstance(node, cst.Call)
        )
        return any(name.endswith(("DataParallel", "DistributedDataParallel")) for name in names)


def _owner(node: cst.BaseExpression) -> cst.BaseExpression:
    assert isinstance(node, cst.Attribute)
    return node.value
