"""onnxruntime: the engine that the device uses unless told otherwise."""
