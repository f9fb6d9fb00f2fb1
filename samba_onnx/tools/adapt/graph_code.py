"""The text of what is new in a program: the module with its loss, its named inputs and its first batch."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

import libcst as cst

from samba_onnx.tools.adapt.name_units import SELF, unit_of

_TAKEN = frozenset(
    {"training", "train", "eval", "forward", "parameters", "buffers", "name", "half"}
)
"""What a module of torch uses itself."""


def plain_name(unit: str) -> str:
    """Return a name for a unit outside of its object: ``model`` of ``self.model``."""
    # Leading underscores would make a private name of an argument.
    return unit.removeprefix(f"{SELF}.").lstrip("_") or unit


class _Substitution(cst.CSTTransformer):
    """Writes other expressions for units."""

    def __init__(self, codes: Mapping[str, str], several: Mapping[str, list[str]]) -> None:
        super().__init__()
        self._codes = codes
        self._several = several

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        """Leave names behind a dot alone; ``leave_Attribute`` puts them back."""

    def visit_Arg_keyword(self, node: cst.Arg) -> None:
        """Leave keywords alone; ``leave_Arg`` puts them back."""

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._written(updated_node)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        code = self._codes.get(unit_of(original_node))
        if code is None:
            code = self._codes.get(cst.Module(body=[]).code_for_node(original_node))
        if code is not None and "." in cst.Module(body=[]).code_for_node(original_node):
            return cst.parse_expression(code)
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        return self._whole(original_node, updated_node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        return self._whole(original_node, updated_node)

    def _whole(
        self, original: cst.BaseExpression, updated: cst.BaseExpression
    ) -> cst.BaseExpression:
        text = cst.Module(body=[]).code_for_node(original)
        several = self._several.get(text)
        # What draws random numbers draws others each time: every place has an input of its own.
        code = several.pop(0) if several else self._codes.get(text)
        return updated if code is None else cst.parse_expression(code)

    def _written(self, node: cst.Name) -> cst.BaseExpression:
        code = self._codes.get(node.value)
        return node if code is None else cst.parse_expression(code)


def substituted(
    node: cst.CSTNode, codes: Mapping[str, str], several: Mapping[str, list[str]] | None = None
) -> cst.CSTNode:
    """Return a copy of a node in which units are written as other expressions.

    Args:
        node: A statement or an expression.
        several: Expressions for the places where one text stands, in their order; those that were
            written are taken off.
        codes: The expression for each unit, and for calls and subscripts by their text.
    """
    # Identical pairs are left out, so that most nodes stay the very objects of the program.
    other = {unit: code for unit, code in codes.items() if unit != code}
    changed = node.visit(_Substitution(other, several or {}))
    assert isinstance(changed, cst.CSTNode)
    return changed


def statements_text(statements: Iterable[cst.CSTNode]) -> str:
    """Return statements as text at the level of a module."""
    # Only whole lines and blocks: they are what a slice consists of.
    lines = [
        statement
        for statement in statements
        if isinstance(statement, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    ]
    return cst.Module(body=lines).code.strip("\n")


def member(unit: str) -> str:
    """Return the attribute of the new module that holds a unit's object."""
    # torch.nn.Module has methods and flags of these names.
    name = plain_name(unit)
    return f"{name}_" if name in _TAKEN else name


def module_text(
    *,
    name: str,
    base: str,
    members: Iterable[str],
    inputs: Iterable[str],
    body: str,
    result: str,
    about: str,
) -> str:
    """Return the class of the module that computes model and loss.

    Args:
        name: Its name.
        base: ``nn.Module``, as the program writes it.
        members: Attributes that it is given.
        inputs: Arguments of ``forward``.
        body: The statements of ``forward``.
        result: What ``forward`` returns.
        about: What its docstring says.
    """
    # A plain class: base, constructor and forward are what the vendor's tutorials show.
    given = list(dict.fromkeys(members))
    sets = "".join(f"        self.{one} = {one}\n" for one in given)
    return (
        f"class {name}({base}):\n"
        f'    """{about}"""\n\n'
        f"    def __init__({', '.join(['self', *given])}):\n"
        "        super().__init__()\n"
        f"{sets}\n"
        f"    def forward({', '.join(['self', *inputs])}):\n"
        f"{textwrap.indent(body, ' ' * 8)}\n"
        f"        return {result}\n"
    )


def naming_text(
    name: str,
    inputs: Iterable[str],
    numbers: Mapping[str, str],
    mappings: Iterable[str],
    sequences: Iterable[str] = (),
) -> str:
    """Return the function that gives the tensors of a batch their names.

    Args:
        name: Its name.
        inputs: The tensors.
        numbers: Expressions of tensors for the inputs that are numbers of Python.
        mappings: The inputs that are dictionaries of tensors.
        sequences: The inputs that are tuples of tensors.
    """
    given, several, tuples = list(inputs), list(mappings), list(sequences)
    # Where a dictionary goes into the model by name, all inputs do.
    lines = [
        f'{_key(one, several)}samba.from_torch_tensor({numbers.get(one, one)}, name="{one}"),'
        for one in given
        if one not in (*several, *tuples)
    ]
    lines += [
        f'tuple(samba.from_torch_tensor({numbers.get(one, "part")}, name=f"{one}_{{place}}") '
        f"for place, part in enumerate({one})),"
        for one in tuples
    ]
    lines += [
        f"**{{name: samba.from_torch_tensor(value, name=name) for name, value in {one}.items()}},"
        for one in several
    ]
    body = "".join(f"        {line}\n" for line in lines)
    opening, closing = ("{", "}") if several else ("[", "]")
    return (
        f"def {name}({', '.join(given)}):\n"
        '    """Give the tensors of a batch the names that the RDU knows them by."""\n'
        f"    return {opening}\n{body}    {closing}\n"
    )


def filling_text(name: str, torch: str) -> str:
    """Return the function that fills a smaller last batch.

    Args:
        name: Its name.
        torch: The name by which the program knows torch.
    """
    return (
        f"def {name}(rows, tensor):\n"
        '    """Repeat the last row of a smaller last batch: the RDU takes batches of the compiled size."""\n'
        "    missing = tensor[-1:].expand(rows - len(tensor), *tensor.shape[1:])\n"
        f"    return {torch}.cat([tensor, missing])\n"
    )


def _key(name: str, mappings: list[str]) -> str:
    return f'"{name}": ' if mappings else ""


def first_batch_text(
    *,
    name: str,
    arguments: Iterable[str],
    body: str,
    named: str,
    generators: Iterable[str],
    own: Iterable[str],
    torch: str,
) -> str:
    """Return the function that draws the first batch.

    Args:
        name: Its name.
        arguments: What it takes.
        body: Statements that make the batch.
        named: The call that names its tensors.
        own: Generators that the program made of torch's.
        torch: The name by which it knows torch.
        generators: Modules with a generator of their own that the program uses, ``numpy.random`` and ``random``.
    """
    # fork_rng restores torch's generator; numpy's and Python's are restored by hand.
    states = list(generators)
    saved = "".join(f"    {_variable(state)} = {state}.get{_state(state)}()\n" for state in states)
    restored = "".join(f"    {state}.set{_state(state)}({_variable(state)})\n" for state in states)
    saved += "".join(f"    {one}_before = {one}.get_state()\n" for one in own)
    restored += "".join(f"    {one}.set_state({one}_before)\n" for one in own)
    return (
        f"def {name}({', '.join(arguments)}):\n"
        '    """Return the first batch, whose shapes all others have; no later one is another for it."""\n'
        f"{saved}"
        f"    with {torch}.random.fork_rng(devices=[]):\n"
        f"{textwrap.indent(body + chr(10) if body else '', ' ' * 8)}"
        f"        named = {named}\n"
        f"{restored}"
        "    return named\n"
    )


def _state(generator: str) -> str:
    return "_state" if generator.endswith(".random") else "state"


def _variable(generator: str) -> str:
    return "numbers_before" if generator.endswith(".random") else "python_before"


def compile_text(
    *,
    module: str,
    inputs: str,
    optimizer: str,
    name: str,
    arguments: str,
    leave: str,
    utils: str = "utils",
) -> str:
    """Return the branch that compiles, and the trace of the graph for all other commands.

    Args:
        module: The variable of the module.
        inputs: The variable of the first batch.
        optimizer: The optimizer, a list of several, or ``None``.
        name: The name of the application.
        arguments: The variable of the command line.
        leave: The statement that ends the program.
        utils: The name of SambaFlow's utilities.
    """
    # loss_indices says it outright: outputs beside the loss are not trained.
    infers = optimizer == "None"
    indices = "" if infers else "    loss_indices=[0],\n"
    mode = "    inference=True,\n" if infers else indices
    return (
        f'if {arguments}.command == "compile":\n'
        f"    samba.session.compile(\n"
        f"        {module},\n"
        f"        {inputs},\n"
        f"        {optimizer},\n"
        f'        name="{name}",\n'
        f"        app_dir={utils}.get_file_dir(__file__),\n"
        f"        config_dict=vars({arguments}),\n"
        f"        pef_metadata=get_pefmeta({arguments}, {module}),\n"
        f"{textwrap.indent(mode, '    ')}"
        f"    )\n"
        f"    {leave}\n"
        f"{utils}.trace_graph(\n"
        f"    {module},\n"
        f"    {inputs},\n"
        f"    {optimizer},\n"
        f"    pef={arguments}.pef,\n"
        f"    mapping={arguments}.mapping,\n"
        f"{indices}"
        f")"
    )
