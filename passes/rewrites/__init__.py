"""Rewrites: an ``onnx_ir.Model`` goes in, the same model, simpler and legal, comes out."""
