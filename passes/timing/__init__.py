"""The model of time: from the nodes of a section to microseconds of a whole run, read from top to bottom.

1. :mod:`~samba_onnx.passes.timing.node_work`: the operations of a node and the bytes of a value.
2. :mod:`~samba_onnx.passes.timing.matrix_products`: how large products are, how well they fill a device, and how
   many of its units an operator needs.
3. :mod:`~samba_onnx.passes.timing.traffic`: the bytes that a section moves in off-chip memory, and their time.
4. :mod:`~samba_onnx.passes.timing.maps`: the maps that convolutions move there, and the places of the first one.
5. :mod:`~samba_onnx.passes.timing.section_terms`: what a section has to do, and from that, by the figures of a
   target, what a call of it takes by itself: launch, compute, on-chip and off-chip traffic, fill.
6. :mod:`~samba_onnx.passes.timing.streaming`: what of a section goes on while an exchange between RDUs brings rows.
7. :mod:`~samba_onnx.passes.timing.launches`: the sections of a schedule beside each other: which of them are one
   program, which take a launch of their own, and which are repeated by kernel looping.
8. :mod:`~samba_onnx.passes.timing.hosts`: what a fallback takes on the host's CPU.
9. :mod:`~samba_onnx.passes.timing.overlap`: when calls and copies begin and end, and what goes on at once.
10. :mod:`~samba_onnx.passes.timing.schedule_time`: the time of a whole run, by what takes it and by call.

The first eight look at nodes while a model is planned; what they find is recorded in sections and fallbacks. The
last two read records only, so that plans, reports and benchmarks state one time of a PEF, old ones included.

Figures come from :mod:`samba_onnx.passes.targets`: profiles, the conditions of a target as kernel looping, and
suppositions. A step of several replicas is modelled in :mod:`samba_onnx.tools.plan.step_model`, which walks through
the runtime's own plan of reductions: this half of the product imports nothing of the runtime.

Below this room, in ``pef``, stands what the runtime needs, too, which states modelled times beside measured ones:
the time of a copy and of an exchange (``TargetSummary.transfer_seconds``, ``exchange_seconds``), by which planned
and recorded transfers are equal to the last bit, and what of an exchange is hidden behind sections
(:mod:`samba_onnx.pef.exchanges`). ``docs/timing.md`` has the reason and the evidence of every term.
"""
