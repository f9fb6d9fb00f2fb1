"""Members of a module by all of their paths."""

from __future__ import annotations

from torch import nn

from samba_onnx.comparing.eager.running import members_of


def test_tied_members_have_each_of_their_paths() -> None:
    norm = nn.BatchNorm1d(2)
    members = members_of(nn.ModuleDict({"first": norm, "second": norm}))
    assert members.keys() >= {"first.weight", "second.weight", "first.running_var"}
    assert members["second.weight"] is norm.weight
    assert members["second.running_var"] is norm.running_var
