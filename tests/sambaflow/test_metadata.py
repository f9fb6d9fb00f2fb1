"""Tiling, which programs hand to the compiler by the classes' keys."""

from samba_onnx.sambaflow.mac.metadata import ConvTilingMetadata, TilingMetadata


def test_keys_differ_and_sizes_are_kept() -> None:
    assert ConvTilingMetadata.key != TilingMetadata.key
    assert ConvTilingMetadata(original_size=[1, 3, 8, 8]).original_size == [1, 3, 8, 8]
    assert TilingMetadata(original_size=[1], num_tiles=[2]).num_tiles == [2]
