"""One judge: what is expected of results, by whom, how far they may be off, and where they first differ.

1. There are four references: the original model on an engine, eager torch (:mod:`~samba_onnx.comparing.eager`),
   the sample stored in a PEF, and the model before a pass.
2. Each says what it expects of a run in an ``Expectation``: values, and what is known of its own errors.
3. ``judge`` makes a ``Verdict`` of each result. It holds an array against an ``Expected``: values, what each
   element may be off, and why; by the rules of types, by torch's own roundings, or as the expectation states.
4. What fails is judged again with more knowledge of the reference, for as long as there is more to know.
5. A ``Walk`` goes along operators, passes or values, and names the first place that computes something else.
6. Nothing here compiles: who converts in order to compare stands above.
"""
