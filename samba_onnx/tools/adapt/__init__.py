"""``samba-port adapt``: a plain PyTorch program becomes a SambaFlow program.

``program_files`` finds the files of a program, ``source`` answers for all of them, ``bindings`` says which
names are one object, ``trained_step`` finds what it trains, ``slicing`` which of its statements the RDU
computes. Files in ``*_edits`` plan what changes, and what nobody could change is an open point.
``restoring`` goes the way back.
"""

from samba_onnx.tools import HelpGroup, Tool

TOOL = Tool(
    "adapt",
    question="What is this PyTorch program, written for SambaFlow?",
    group=HelpGroup.PROGRAMS,
    place=105,
    documents={"adapt": "samba_onnx.tools.adapt.adapt_report:AdaptReport"},
)
