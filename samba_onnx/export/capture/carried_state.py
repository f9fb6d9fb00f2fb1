"""State that ``forward`` keeps in attributes: made state of the device, or refused, or found to be harmless.

A graph is traced in one call, and would begin every run with what was there before that call. Of what a
call changes, three kinds are told apart by calling the module in torch a few times:

1. Tensors that the next call reads, of one shape and type, become buffers that the module carries.
2. What else has a say in what later calls compute is refused: numbers, tensors that are not there before the
   first call or grow, whatever is kept outside of modules.
3. The rest is harmless: caches that are the same whenever they are made, what ``forward`` sets before it
   reads it, what it only writes, counters that are only printed.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.counted_numbers import Uses, counted
from samba_onnx.export.capture.state_runs import Calls, Place, StateRuns, equal
from samba_onnx.export.capture.variables import MISSING, Kept, Variable, Variables, same_leaf
from samba_onnx.program.source_location import is_exporters
from samba_onnx.tensor.carried import Step, carry, with_leaf

__all__ = ["Watch", "keep_state"]

_JUMPS: Final = (10, 100, 1_000, 10_000, 1_000_000)
"""How many steps ahead of its first value a number is tried: what is done after a thousand calls counts."""


class Watch:
    """Notices which variables a call of ``forward`` changes."""

    def __init__(self, module: nn.Module) -> None:
        """Prepare to watch.

        Args:
            module: What is traced.
        """
        self.variables = Variables(module)
        self.changed: set[Variable] = set()
        self._module = module
        self._before: dict[Variable, Kept] = {}

    def __enter__(self) -> Watch:
        """Begin to watch."""
        # Hooks of the user's, which may change something as well, have their turn first.
        self._handles = (
            self._module.register_forward_pre_hook(self._begin),
            self._module.register_forward_hook(self._end),
        )
        return self

    def __exit__(self, *error: Any) -> None:
        """End it; what a call left unfinished has changed by then counts, too."""
        for handle in self._handles:
            handle.remove()
        if error[0] is not None and self._before:
            self._end()

    def _begin(self, *_: Any) -> None:
        self._before = self.variables.now()

    def _end(self, *_: Any) -> None:
        self.changed |= self.variables.changed(self._before)


def keep_state(
    module: nn.Module,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    watch: Watch,
    program: ExportedProgram | None,
) -> bool:
    """Make tensors that a module carries from call to call its buffers.

    Args:
        module: What was traced.
        args: Positional arguments of ``forward``.
        keywords: Keyword arguments.
        watch: Has seen what tracing it changed.
        program: What was traced; None if that failed.

    Returns:
        Whether there are such tensors, so that the module is to be traced again.

    Raises:
        ModelError: What is carried otherwise has a say in what later calls compute.
    """
    suspects = set(watch.changed)
    # What is written in place shows nothing while tensors have no content: of all variables with
    # tensors, any may be the one.
    if program is not None and _writes_constants(program):
        suspects |= {
            variable
            for variable, kept in watch.variables.now().items()
            if any(isinstance(leaf, Tensor) for _, leaf, _ in kept.leaves)
        }
    # Most modules keep nothing, and need no calls in torch to find that out.
    if not suspects:
        return False
    found = _Findings(module, args, keywords, watch.variables, suspects)
    found.refuse()
    for variable, steps in found.carried:
        carry(variable.owner, variable.name, steps)
    return bool(found.carried)


def _writes_constants(program: ExportedProgram) -> bool:
    """Return whether an exported graph may write in place into a tensor that is no member of its module."""
    if not program.graph_signature.inputs_to_lifted_tensor_constants:
        return False
    graphs = [m for m in program.graph_module.modules() if isinstance(m, fx.GraphModule)]
    schemas = [getattr(n.target, "_schema", None) for graph in graphs for n in graph.graph.nodes]
    return any(schema is not None and schema.is_mutable for schema in schemas)


@dataclass
class _Findings:
    """What calls of a module in torch show of the variables that it changes."""

    module: nn.Module
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    variables: Variables
    suspects: set[Variable]
    carried: list[Place] = field(default_factory=list)
    others: set[Variable] = field(default_factory=set)

    def __post_init__(self) -> None:
        # Calls in torch, as while tracing there are no values to compare.
        self._runs = StateRuns(self.module, self.args, self.keywords, self._look)
        self._true = self._runs.calls()
        first = self._true.kept[0]
        for variable in first:
            self._sort(variable)
        self._keep_what_is_read()

    def _look(self) -> dict[Variable, Kept]:
        return self.variables.of(self.suspects)

    def _sort(self, variable: Variable) -> None:
        """Note what of a variable changes: tensors that keep their form, or something else."""
        first, *later = (kept[variable] for kept in self._true.kept)
        if any(kept.structure != first.structure for kept in later):
            self.others.add(variable)
            return
        for place, leaf in enumerate(first.leaves):
            leaves = [kept.leaves[place] for kept in later]
            if all(same_leaf(leaf, other) for other in leaves):
                continue
            if all(_same_form(leaf[1], other[1]) for other in leaves):
                self.carried.append((variable, leaf[0]))
            else:
                self.others.add(variable)

    def _keep_what_is_read(self) -> None:
        """Leave out tensors that a call sets without having looked at those of the call before."""
        first, second = self._true.kept[:2]
        before = {place: _leaf(first, place) for place in self.carried}
        after = {place: _leaf(second, place) for place in self.carried}
        read = {place for place, leaf in before.items() if id(leaf) in self._true.touched}
        # What moves to a place that is read, as in a queue, is read later.
        # A chain of moves is no longer than there are places.
        for _ in self.carried:
            wanted = {id(after[place]) for place in read}
            read |= {place for place, leaf in before.items() if id(leaf) in wanted}
        self.carried = [place for place in self.carried if place in read]

    def refuse(self) -> None:
        """Refuse what a graph would get wrong.

        Raises:
            ModelError: Names the variable and the line that changes it.
        """
        # A graph's state is that of modules: what others hold has no buffer to be in.
        outside = [one for one, _ in self.carried if not isinstance(one.owner, nn.Module)]
        for variable in outside:
            raise self._refusal(variable, _OUTSIDE)
        if not self.others or self._has_failed():
            return
        # Given their first values before every call, they change results only where calls read them.
        if not self._same_if_frozen(self.others):
            # One variable that explains it is named; it may also take several.
            alone = [one for one in self._sorted() if not self._same_if_frozen({one})]
            raise self._refusal((alone or self._sorted())[0])
        # The same results so far do not clear a number: a limit may lie a thousand calls ahead.
        for variable in self._sorted():
            use = self._use_of_number(variable)
            if use is not None:
                raise self._refusal(variable, read_at=use)

    def _has_failed(self) -> bool:
        # Torch fails on the inputs that there are, as on indices of zeros: nothing can be told.
        return isinstance(self._true.results[0], str)

    def _sorted(self) -> list[Variable]:
        return sorted(self.others, key=lambda one: one.path)

    def _same_if_frozen(self, variables: Collection[Variable]) -> bool:
        """Return whether calls make the same where variables have their first values in each."""
        frozen = self._runs.calls(frozen=variables, carried=self.carried)
        return all(map(equal, self._true.results, frozen.results))

    def _use_of_number(self, variable: Variable) -> str | None:
        """Return the line that uses a number which changes in every call; None if none does."""
        for steps, before, after in self._counting(variable):
            uses: Uses = []
            noted = self._with_number(variable, steps, counted(before, uses))
            # A call that fails with such a number, which is a subclass, tells nothing.
            if uses and not isinstance(noted.results[0], str):
                return uses[0]
            if noted.numbers:
                return ""
            # What uses a number without its noticing shows in the results, if only far ahead.
            for jump in _JUMPS:
                ahead = self._with_number(variable, steps, before + (after - before) * jump)
                if not equal(self._true.results[0], ahead.results[0]):
                    return ""
        return None

    def _with_number(self, variable: Variable, steps: tuple[Step, ...], number: Any) -> Calls:
        """Return what one call makes where a variable has another number."""
        return self._runs.calls(
            1, begin=lambda: variable.assign(with_leaf(variable.value, steps, number))
        )

    def _counting(self, variable: Variable) -> Iterator[tuple[tuple[Step, ...], Any, Any]]:
        """Iterate over the numbers of a variable that go on changing, with their first two values."""
        first, second, third = (kept[variable] for kept in self._true.kept[:3])
        # Values that come and go have no places to be compared at.
        if not first.structure == second.structure == third.structure:
            return
        for one, two, three in zip(first.leaves, second.leaves, third.leaves, strict=True):
            numbers = (one[1], two[1], three[1])
            # By exact type, as truth values are integers and no counters; what changes in the first
            # call only goes on no further.
            if all(type(number) in (int, float) for number in numbers) and two[1] != three[1]:
                yield one[0], one[1], two[1]

    def _refusal(self, variable: Variable, advice: str = "", read_at: str = "") -> ModelError:
        kept = [one[variable] for one in self._true.kept]
        what, instead = _described(kept, variable)
        line = read_at or _changing_line(self._runs, variable)
        return ModelError(
            f"{line or 'forward'}: {type(self.module).__name__} keeps {variable.path!r} from call to call, and what "
            f"later calls compute depends on it: {what}. A compiled graph would have the first in every run: "
            f"{advice or instead}",
            location=line or None,
        )


_OUTSIDE: Final = "keep it in an attribute of the module, which stays on the device"


def _described(kept: Sequence[Kept], variable: Variable) -> tuple[str, str]:
    """Return how a variable changes, and what to write instead."""
    first, second, third = kept[:3]
    name = variable.name
    if first.structure != second.structure:
        return (
            f"there are {_count(first)} values in it before the first call and {_count(second)} after it",
            "give it all the tensors that it will ever hold before compiling, as zeros, and let new ones take the "
            "place of old ones, or keep one tensor that is written by index",
        )
    pairs = zip(first.leaves, second.leaves, third.leaves, strict=True)
    changed = [
        (one[1], two[1], three[1])
        for one, two, three in pairs
        if not (same_leaf(one, two) and same_leaf(two, three)) and not _same_form(one[1], two[1])
    ]
    before, after, last = changed[0] if changed else (first.value, second.value, third.value)
    what = f"it is {_said(before)} before the first call and {_said(after)} after it"
    # The same tensor after two calls: it is made once.
    if after is last and isinstance(after, Tensor):
        return (
            what,
            "as it changes in the first call only, run the module once before it is compiled",
        )
    if isinstance(after, Tensor) and isinstance(last, Tensor) and after.shape == last.shape:
        form = f"torch.zeros({list(after.shape)}, dtype={after.dtype})"
        return what, (
            f"give it a tensor of that shape before compiling, as self.{name} = {form} in __init__, and it "
            "stays on the device"
        )
    if isinstance(after, Tensor):
        return what, (
            "what stays on the device keeps its shape: make the whole tensor before compiling, and write "
            "into it by index"
        )
    if type(after) in (int, float) and after != last:
        dtype = "torch.int64" if isinstance(after, int) else "torch.float32"
        return what, (
            f"count in a buffer, self.register_buffer({name!r}, torch.tensor({before!r}, dtype={dtype})), and "
            "compute with that tensor (torch.where in place of if), or pass the number as an input; what is "
            "only logged is better counted in the training loop"
        )
    return what, (
        "if it changes in the first call only, run the module once before it is compiled; otherwise "
        "keep a tensor in its place, and choose by torch.where"
    )


def _said(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}, {value.dtype}"
    if value is MISSING:
        return "not there"
    simple = isinstance(value, (bool, int, float, str, type(None)))
    return repr(value)[:60] if simple else f"a {type(value).__name__}"


def _count(kept: Kept) -> int:
    return len(kept.leaves) if kept.value is not MISSING else 0


def _same_form(one: Any, other: Any) -> bool:
    is_pair = isinstance(one, Tensor) and isinstance(other, Tensor)
    return is_pair and (one.shape, one.dtype) == (other.shape, other.dtype)


def _leaf(kept: Mapping[Variable, Kept], place: Place) -> Any:
    variable, steps = place
    return next(leaf for at, leaf, _ in kept[variable].leaves if at == steps)


def _changing_line(runs: StateRuns, variable: Variable) -> str:
    """Return the user's line that changes a variable, as ``model.py:12``; empty if it is not found."""
    found: list[str] = []
    last = ""

    def look(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal last
        if event == "call":
            # Calls that return None are not traced: library lines are not the user's, and stepping
            # through them is slow.
            return None if is_exporters(frame.f_code.co_filename) else look
        # A change shows at the event behind the line that made it.
        if not found and not begun[0].same(current()):
            found.append(last)
        if event == "line":
            last = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        return look

    def current() -> Kept:
        return Variables.of([variable])[variable]

    begun: list[Kept] = []
    # A debugger's or a coverage tool's, which must have its turn again.
    before = sys.gettrace()

    def begin() -> None:
        begun.append(current())
        sys.settrace(look)

    try:
        runs.calls(1, begin=begin)
    finally:
        sys.settrace(before)
    return found[0] if found else ""
