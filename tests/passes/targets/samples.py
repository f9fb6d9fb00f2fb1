"""One-node models as text."""

from __future__ import annotations

import onnx
import onnx_ir as ir


def parse(
    inputs: str, outputs: str, body: str, constants: str = "", *, opset: int = 21, imports: str = ""
) -> ir.Model:
    """Return the model ``g (inputs) => (outputs) <constants> { body }``."""
    text = (
        f'<ir_version: 10, opset_import: ["": {opset}{imports}]>'
        f" g ({inputs}) => ({outputs}) <{constants}> {{ {body} }}"
    )
    return ir.serde.deserialize_model(onnx.parser.parse_model(text))


def last_node(
    inputs: str, outputs: str, body: str, constants: str = "", *, opset: int = 21, imports: str = ""
) -> ir.Node:
    """Return the last node of the model; it keeps its graph alive."""
    return list(parse(inputs, outputs, body, constants, opset=opset, imports=imports).graph)[-1]
