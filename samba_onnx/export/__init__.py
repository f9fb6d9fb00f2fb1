"""From torch to ONNX: capture a module's graph, translate it operator by operator."""
