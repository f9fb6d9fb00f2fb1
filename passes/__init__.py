"""Rewrites and plans: an ``onnx_ir.Model`` goes in, sections and a transfer plan come out."""

if __name__ != "samba_onnx.passes":
    raise ImportError("import samba_onnx.passes: 'passes' is that package's folder in the checkout")
