"""Tests of tools run command lines as those of the command line do."""

from tests.cli.conftest import compiler, mixed, model, samba_port

__all__ = ["compiler", "mixed", "model", "samba_port"]
