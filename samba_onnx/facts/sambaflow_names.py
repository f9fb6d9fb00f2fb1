"""The names that SambaFlow's programs use: which modules are here, what is not and why."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from samba_onnx.operator_names import TORCH_OPERATORS

__all__ = ["MISSING", "MODULES", "ROOT", "ModuleRow", "known_names", "missing", "submodules"]

ROOT: Final = "sambaflow"
"""What programs import."""


@dataclass(frozen=True)
class ModuleRow:
    """One module of SambaFlow's, and where in samba-onnx each of its names comes from."""

    about: str = ""
    """What is in it, in words; empty for ``code``, which says so itself."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Its names by the module that has them, separated by spaces; ``theirs=ours`` where SambaFlow has
    another name for a thing."""
    code: str = ""
    """The module of ``samba_onnx.sambaflow`` that it is, under a second name."""
    refused: str = ""
    """Names that can be imported and not called; ``MISSING`` has the reasons."""
    others: str = ""
    """A module whose other public names it has, too, each when it is asked for."""
    effect: str = ""
    """A function of no arguments that its import calls, as ``module:name``."""

    def sources(self) -> Iterator[tuple[str, str, str]]:
        """Yield each of ``names``, the module that it comes from, and its name there."""
        for home, names in self.names.items():
            for name in names.split():
                theirs, _, ours = name.partition("=")
                yield theirs, home, ours or theirs


def _operators(part: str) -> Mapping[str, str]:
    """Return the operators of one part, which is a module of ``sambaflow.samba.functional``."""
    return {"samba_onnx.functional": " ".join(sorted(TORCH_OPERATORS[part]))}


_PATTERNS: Final = "sn_fma sn_gather sn_reduce sn_scatter sn_zipmapreduce"
_HELPERS: Final[Mapping[str, str]] = {
    "samba_onnx.utils": "assert_close fix_rdu_affinity get_file_dir get_rank get_world_size "
    "init_output_grads is_main_process measure_performance measure_sections set_seed trace_graph "
    "trace_multigraph weight_norm_",
    "samba_onnx.functional": "SNType",
}
"""Helpers that SambaFlow has in a package and in a module of it."""

MODULES: Final[Mapping[str, ModuleRow]] = MappingProxyType(
    {
        "sambaflow": ModuleRow(code="samba_onnx.sambaflow"),
        "sambaflow.frameworks": ModuleRow(
            "modules of the vendor's in other arithmetic, which are not here."
        ),
        "sambaflow.frameworks.quantized": ModuleRow("quantized modules, which are not here."),
        "sambaflow.frameworks.quantized.quantized_linear": ModuleRow(
            "imported by programs that run without it, too.", refused="QuantizedLinear"
        ),
        "sambaflow.logging": ModuleRow(code="samba_onnx.sambaflow.logging"),
        "sambaflow.mac": ModuleRow(
            "what programs hand to the middle part of the vendor's compiler."
        ),
        "sambaflow.mac.metadata": ModuleRow(code="samba_onnx.sambaflow.metadata"),
        "sambaflow.models": ModuleRow("models that SambaFlow ships, which are not here."),
        "sambaflow.models.unet": ModuleRow(
            "a model that SambaFlow ships, and that is not here.", refused="UNet"
        ),
        "sambaflow.online_inference_service": ModuleRow(
            "clients of the vendor's service, which are not here."
        ),
        "sambaflow.online_inference_service.sn_sqs_handler": ModuleRow(
            "a queue of the vendor's service.", refused="Queue"
        ),
        # All of samba_onnx that SambaFlow has is there by the same name, besides what only programs
        # written for SambaFlow use.
        "sambaflow.samba": ModuleRow(
            "the session, tensors, and every operator by its name.",
            {
                "samba_onnx.sessions": "session=SESSION",
                # Names of older releases and published texts; all of them work in place.
                "samba_onnx.tensor": "from_torch_=from_torch_model_ "
                "from_torch_model=from_torch_model_ to_torch_tensor=to_torch",
                "samba_onnx.sambaflow.samba_functions": "is_internal patched_torch",
            },
            refused="groupby",
            others="samba_onnx",
            # On import: programs join their group before they do anything else with SambaFlow.
            effect="samba_onnx.sambaflow.process_groups:adapt_process_groups",
        ),
        "sambaflow.samba.argconf": ModuleRow("settings as pydantic models."),
        "sambaflow.samba.argconf.args": ModuleRow(code="samba_onnx.sambaflow.args"),
        "sambaflow.samba.directives": ModuleRow(code="samba_onnx.sambaflow.directives"),
        "sambaflow.samba.env": ModuleRow(code="samba_onnx.sambaflow.env"),
        "sambaflow.samba.experiment_logger": ModuleRow(
            "meters of a training, whose contents are not published.",
            refused="AccMeter CountMeter DisplayMeter Logger",
        ),
        "sambaflow.samba.functional": ModuleRow(
            "the operators of the RDU.",
            {"samba_onnx.functional": _PATTERNS},
            others="samba_onnx.functional",
        ),
        "sambaflow.samba.functional.arithmetic": ModuleRow(
            "operators that work on one element at a time.", _operators("arithmetic")
        ),
        "sambaflow.samba.functional.logical": ModuleRow(
            "comparisons, and operators on truth values and bits.", _operators("logical")
        ),
        "sambaflow.samba.functional.loss": ModuleRow("losses.", _operators("loss")),
        "sambaflow.samba.functional.reduce": ModuleRow(
            "operators that take one number out of many.", _operators("reduce")
        ),
        "sambaflow.samba.functional.stir": ModuleRow(
            "what functions for ``sn_zipmapreduce`` are written with.",
            {"samba_onnx.functional": f"{_PATTERNS} sn_imm sn_iteridx sn_multinomial sn_select"},
        ),
        "sambaflow.samba.functional.tensorarithmetic": ModuleRow(
            "products of matrices and vectors.", _operators("tensorarithmetic")
        ),
        "sambaflow.samba.functional.tensorops": ModuleRow(
            "operators that move elements and do not compute.", _operators("tensorops")
        ),
        "sambaflow.samba.graph": ModuleRow(
            "graphs that are compiled together, by ``session.add_graph``.",
            {"samba_onnx.graph": "FwdGraph SambaGraph"},
        ),
        "sambaflow.samba.lazy_param": ModuleRow(code="samba_onnx.sambaflow.lazy_param"),
        "sambaflow.samba.materialize": ModuleRow(code="samba_onnx.sambaflow.materialize"),
        "sambaflow.samba.nn": ModuleRow(
            "torch's modules, which are traced as they are.", others="samba_onnx.nn"
        ),
        "sambaflow.samba.nn.parameter": ModuleRow(
            "``torch.nn.parameter`` with SambaParameter.",
            {"samba_onnx.nn.parameter": "Parameter SambaParameter"},
        ),
        "sambaflow.samba.optim": ModuleRow(
            "optimizers, whose steps sections of type OPT take.",
            {"samba_onnx.optim": "SGD Adam AdamW"},
            refused="Adagrad SparseAdamW",
        ),
        "sambaflow.samba.optim.adam": ModuleRow(
            "where the documentation places AdamW.", {"samba_onnx.optim": "Adam AdamW"}
        ),
        "sambaflow.samba.profiler": ModuleRow(
            "how long the steps of a program take on the host.",
            {"samba_onnx.sessions": "Profiler"},
        ),
        "sambaflow.samba.sambaloader": ModuleRow(
            "batches of a DataLoader as named tensors, loaded ahead of time.",
            {"samba_onnx.sambaloader": "DataLoaderException SambaLoader"},
        ),
        "sambaflow.samba.sambatensor": ModuleRow(
            "tensors with a name and a copy on the device.",
            {
                "samba_onnx.sessions": "DimInfo",
                "samba_onnx.tensor": "SambaTensor from_torch_tensor",
            },
        ),
        "sambaflow.samba.schema": ModuleRow("what arguments may be."),
        "sambaflow.samba.schema.snconfig": ModuleRow(
            "the schema by which ``SambaConfig`` checks a command line.",
            {"samba_onnx.sambaflow.args": "SNConfig"},
        ),
        # ``samba.session`` itself is the session that every program uses, an object of this class.
        "sambaflow.samba.session": ModuleRow(
            "the class of the session.", {"samba_onnx.sessions": "SambaSession session=SESSION"}
        ),
        "sambaflow.samba.sn_private": ModuleRow(
            "functions that published programs import from here.",
            {"samba_onnx.functional": "sn_gather sn_multinomial sn_scatter"},
        ),
        "sambaflow.samba.test": ModuleRow(code="samba_onnx.sambaflow.test"),
        "sambaflow.samba.utils": ModuleRow(
            "what programs are built from around the session.",
            {**_HELPERS, "samba_onnx.sambaflow.common": "compile"},
            refused="create_mac_resource_report",
        ),
        "sambaflow.samba.utils.argparser": ModuleRow(code="samba_onnx.sambaflow.argparser"),
        "sambaflow.samba.utils.benchmark_acc": ModuleRow(code="samba_onnx.sambaflow.benchmark_acc"),
        "sambaflow.samba.utils.checkpoint": ModuleRow(code="samba_onnx.sambaflow.checkpoint"),
        "sambaflow.samba.utils.common": ModuleRow(code="samba_onnx.sambaflow.common"),
        "sambaflow.samba.utils.dataset": ModuleRow("data sets of the vendor's examples."),
        "sambaflow.samba.utils.dataset.mnist": ModuleRow(code="samba_onnx.sambaflow.mnist"),
        "sambaflow.samba.utils.numeric": ModuleRow(code="samba_onnx.sambaflow.numeric"),
        "sambaflow.samba.utils.pef_utils": ModuleRow(code="samba_onnx.sambaflow.pef_utils"),
        "sambaflow.samba.utils.tensorboard_debug": ModuleRow(
            code="samba_onnx.sambaflow.tensorboard_debug"
        ),
        "sambaflow.samba.utils.trainer": ModuleRow(
            "training loops, which programs import and do not call."
        ),
        "sambaflow.samba.utils.trainer.samba": ModuleRow(
            "a training loop on the device, whose arguments nobody has published.", refused="train"
        ),
        "sambaflow.samba.utils.trainer.torch": ModuleRow(
            "a training loop on the host, whose arguments nobody has published.", refused="train"
        ),
        "sambaflow.samba.utils.utils": ModuleRow(
            "where the documentation places the functions of ``utils``.",
            {
                **_HELPERS,
                "samba_onnx.sambaflow.samba.utils": "create_mac_resource_report",
            },
        ),
        "sambaflow.sambacollections": ModuleRow(
            # Tensors are members by identity: two with equal values are two members.
            "a set that keeps its order.",
            {"samba_onnx.sessions": "OrderedSet"},
        ),
    }
)
"""The modules that can be imported, by the name that programs import them by.

They are made of this table when they are imported, and so are the stubs that editors read.
"""

MISSING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sambaflow.frameworks": "quantized modules need kernels whose rounding is not published; "
        "use torch.nn's modules",
        "sambaflow.models": "SambaFlow ships these models; put the model's source file beside the "
        "program and import that",
        "sambaflow.online_inference_service": "it is the client of a service that runs at the "
        "vendor's; call samba.session.run directly",
        "sambaflow.samba.SambaTensor.dsts": "SambaNova has not published what it holds; samba-port "
        "inspect shows which sections read a tensor",
        "sambaflow.samba.experiment_logger": "SambaNova has not published what it keeps; use logging "
        "or torch.utils.tensorboard",
        "sambaflow.samba.groupby": "SambaNova has not published what it computes; group with "
        "torch.topk, torch.sort and samba.functional.sn_gather",
        "sambaflow.samba.optim.Adagrad": "SambaNova has published neither its arguments nor its step; "
        "use AdamW",
        "sambaflow.samba.optim.SparseAdamW": "SambaNova has published its name, and not which elements "
        "its step leaves alone, nor whether weight decay reaches them; AdamW updates all",
        "sambaflow.samba.utils.create_mac_resource_report": "it is of the vendor's own "
        "installations; samba-port inspect shows what a PEF needs",
        "sambaflow.samba.utils.trainer.samba.train": "SambaNova has not published its arguments; write "
        "the loop with samba.session.run",
        "sambaflow.samba.utils.trainer.torch.train": "SambaNova has not published its arguments; write "
        "the loop with the model, its loss and torch.optim",
    }
)
"""Modules and names of SambaFlow's that cannot be used, each with the reason and what to do.

Those that published programs import are in their modules nevertheless, ``refused`` by the rows above:
programs import more than they use.
"""


def submodules(name: str) -> tuple[str, ...]:
    """Return the last names of the modules that are directly below one of SambaFlow's.

    Args:
        name: Dotted name, as ``sambaflow.samba``.
    """
    parents = (module.rpartition(".") for module in MODULES)
    return tuple(last for parent, _, last in parents if parent == name)


def missing(name: str) -> str | None:
    """Return why a symbol of SambaFlow's is not here.

    Args:
        name: Dotted name, as ``sambaflow.models.unet``.

    Returns:
        A message that names the symbol; None if neither it nor what it is a part of is known to be
        missing.
    """
    parts = name.split(".")
    # From the whole name to its parents, so that a reason for one name wins over that for its
    # module.
    for end in range(len(parts), 0, -1):
        reason = MISSING.get(".".join(parts[:end]))
        if reason is not None:
            return f"{name} is not part of samba-onnx: {reason}"
    return None


@functools.cache
def known_names() -> Mapping[str, frozenset[str]]:
    """Return the public names of every module, by the module's dotted name.

    They are kept in a file, since whoever reads programs without running them, as ``samba-port lint``
    does, must not import torch to know them. ``python -m docs.generators.sambaflow_names`` writes it.

    Returns:
        Names by module; those of ``sambaflow.samba.session`` are members of the session, too, since
        ``samba.session`` is both.
    """
    table = json.loads(Path(__file__).with_name("sambaflow_names.json").read_text(encoding="utf-8"))
    return MappingProxyType({module: frozenset(names) for module, names in table.items()})
