"""onnx.reference: a second engine, slow and exact, that shares no kernel with onnxruntime."""
