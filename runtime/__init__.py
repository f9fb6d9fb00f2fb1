"""The device emulator: a PEF goes in, tensors and a transfer ledger come out."""

if __name__ != "samba_onnx.runtime":
    raise ImportError(
        "import samba_onnx.runtime: 'runtime' is that package's folder in the checkout"
    )
