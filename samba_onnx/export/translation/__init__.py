"""Translation: a graph of ATen operators goes in, a graph of ONNX operators comes out."""
