"""Plans: a legal ``onnx_ir.Model`` goes in, sections, a schedule and a transfer plan come out."""
