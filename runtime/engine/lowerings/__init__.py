"""Lowerings: how a stage of plain ONNX becomes a model that onnxruntime runs, and runs well.

A PEF says what the RDU computes, in the operators of its own table. What onnxruntime has no kernel
for, does slowly or does wrong is put right here, after the PEF was read and before a session is
made, so that nothing of it is in the PEF.

To add one, write a file of this room with a function that changes a whole merged model in place::

    def lower_x(model: onnx.ModelProto) -> None: ...

and enter it in ``LOWERINGS`` of :mod:`samba_onnx.runtime.engine.lowerings.pipeline`, at the place
that it needs, with a name and the reason why it exists::

    Lowering("x", "onnxruntime has no kernel for X of int8.", on_model(lower_x)),

A lowering finds the default operator set at the version that the stage imports, inputs, outputs and
most inner values with static shapes (``nodes.declared_shapes``), and no function to inline. Names of
inputs and outputs are symbols of the PEF and stay; nodes that a lowering makes are named by
``nodes.Nodes``. One that has to know where inputs and outputs live takes the ``StageModel`` itself
instead of ``on_model``. Every lowering has a test in the mirror, ``tests/runtime/engine/lowerings``:
the numbers before and after, and a case to which it does not apply.
"""
