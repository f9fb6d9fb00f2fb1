"""What every front end makes: programs of plain ONNX, and where their nodes come from."""
