"""The engine room: executes stages with onnxruntime, and alone knows how."""
