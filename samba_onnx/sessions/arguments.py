"""What SambaFlow's compiler and runtime can be told: one table for command lines and settings objects.

A row is an attribute of the ``argparse.Namespace`` that ``parse_app_args`` returns, and a field of
``CompileArgs`` or ``RunArgs``. Its flags and default are those of SambaFlow's compiler argument
reference, of the README files of its tutorials, and of what public programs read without having
defined it. A row that is a hint chooses between ways to compute the same: it is accepted, kept in
the PEF, and listed by ``samba-port inspect``. What nothing here can do for a run says so when it is
given. All other rows are read by the session, by a function of ``samba.utils``, or by the programs.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from samba_onnx.compiling.option import option_of
from samba_onnx.compiling.options import option_fields
from samba_onnx.compiling.sambaflow_arguments import (
    COMPILING,
    RUNNING,
    Argument,
    Command,
    compiler_row,
)
from samba_onnx.facts.roundings import stated_roundings

LOGGER: Final = logging.getLogger(__name__)


SPATIAL: Final = "spatial"
MAPPINGS: Final = ("section", SPATIAL)
"""Ways to bring sections onto the RDU: one after the other, or all at once."""

_ROWS: Final = {
    row.name: row for field in option_fields().values() for row in option_of(field).settings
}
"""The rows that state options of a compilation, which the fields of the options have."""

_GENERAL: Final = (
    Argument("batch_size", "samples per run", ("-b", "--batch-size"), int, 1),
    Argument("output_folder", "folder of compiled programs", default="out"),
    Argument("inference", "forward pass only", kind=bool, default=False),
    Argument(
        "mapping",
        "run sections one after the other, or all of them at once",
        default="section",
        choices=MAPPINGS,
    ),
    _ROWS["num_spatial_batches"],
    Argument("data_parallel", "train with several processes", kind=bool, default=False),
    Argument("reduce_on_rdu", "add gradients up on the RDU", kind=bool, default=False),
    Argument("world_size", "number of processes", ("-ws", "--world-size"), int, 1),
    Argument(
        "data_parallel_mode",
        "order of the reductions",
        default="normal",
        choices=("normal", "inorder", "optimal"),
    ),
    Argument(
        "distlearn_config",
        "settings of distributed training",
        experimental=True,
        idle="gradients are reduced by torch.distributed, as --data-parallel says",
    ),
    _ROWS["n_chips"],
    Argument("debug", "show experimental arguments", kind=bool, default=False),
    Argument("verbose", "print more", kind=bool, default=False),
    Argument(
        "log_level",
        "least level of what is printed",
        choices=("debug", "info", "warning", "error", "critical"),
    ),
    Argument("use_sambaloader", "load data by SambaLoader", kind=bool, default=False),
)

_COMPILING: Final = (
    Argument(
        "pef_name",
        "name of the PEF and of its folder (default: name of the script)",
        default="",
        commands=COMPILING,
    ),
    _ROWS["arch"],
    Argument(
        "num_tiles",
        "tiles of an RDU to use",
        kind=int,
        commands=COMPILING,
        choices=(1, 2, 4, 8),
        hint=True,
    ),
    *(_ROWS[name] for name in ("kernel_looping", "o0", "o1", "o3", "optimization_rules")),
    *(_ROWS[name] for name in ("graphamp_preset", "precision")),
)

_hint: Final = functools.partial(compiler_row, hint=True)
"""Makes a row of the compiler's that has no effect here."""

_HINTS: Final = (
    *(
        _hint(name, text, kind, experimental=True)
        for name, text, kind in (
            ("compiler_configs_file", "settings of the compiler", str),
            ("mac_v1", "first version of section cutting", bool),
            ("mac_v2", "second version of section cutting", bool),
            ("mac_human_decision", "file with section cuts", str),
            ("enable_conv_tiling", "cut convolutions into tiles", bool),
            ("default_par_factors", "default parallel factors", bool),
            ("o1_experimental_opts", "try more rules of fusion", Any),
            ("enable_distribution_pass", "cut operators for several RDUs", Any),
            ("weight_grad_reduce", "bf16sr: round sums of gradients at random", Any),
            ("compiler_mode", "way of compiling", Any),
            ("enable_mixed_precision_ops", "operators with several types", Any),
            ("enable_multi_input_broadcast", "broadcast several inputs", Any),
            ("tiling_accum", "type of sums over tiles", Any),
            ("use_air_ce", "another cross entropy", Any),
            ("all_regions_hbm", "everything in HBM", Any),
            ("hbm_auto_alloc", "choose what is in HBM", Any),
            ("target_sambaflow_version", "version of SambaFlow", Any),
            ("run_early_tp", "cut tensors early", Any),
            ("optimize_concat_split", "merge cat and split", Any),
            ("enable_pcu_scaling", "scale compute units", Any),
            ("skip_pnr_aware", "skip placing and routing", Any),
            ("loop_conversion", "make loops", Any),
            ("enable_coe", "composition of experts", Any),
            ("enable_hypersection", "one section of several graphs", Any),
            ("plot", "draw the graph", Any),
            ("stage_instrumentation", "measure the stages of sections", Any),
        )
    ),
    # The only hint that takes a list, so that it stands apart.
    _hint("resources_scaling_factors", "share of resources", float, several=True),
    _ROWS["tensor_parallel"],
)

_RUNNING: Final = (
    Argument("pef", "the PEF to run", ("-p", "--pef"), default="", commands=RUNNING),
    Argument(
        "num_iterations",
        "runs to make",
        ("-n", "--num-iterations"),
        int,
        100,
        commands=RUNNING,
    ),
    Argument(
        "run_graph_only",
        "leave inputs and outputs on the RDU",
        kind=bool,
        default=False,
        commands=RUNNING,
    ),
    Argument(
        "min_duration",
        "least seconds to measure",
        kind=float,
        default=0.0,
        commands=RUNNING,
    ),
    Argument("json", "file for what was measured", commands=RUNNING),
    Argument("bench_report_json", "file for a report", commands=RUNNING),
    Argument(
        "compiled_stats_json",
        "file with figures of the compiler",
        commands=RUNNING,
        idle="SambaNova has not published what is in it; samba-port inspect --json has the figures",
    ),
    Argument("acc_report_json", "file for accuracies", commands=RUNNING),
    Argument(
        "json_counters",
        "file for counters",
        commands=RUNNING,
        idle="the emulator has no counters of hardware; samba.session.transfers counts copies",
    ),
    Argument("visualize", "draw results", kind=bool, default=False, commands=RUNNING),
    Argument(
        "dump_accuracy_debug_info",
        "write what differs from the host, for TensorBoard",
        kind=bool,
        default=False,
        commands=RUNNING,
        experimental=True,
    ),
    Argument("gold_file_path", "file with expected results", commands=RUNNING),
    Argument("num_sections", "sections to measure (default: all)", kind=int, commands=RUNNING),
    Argument(
        "resource_report_path",
        "file with resources",
        commands=RUNNING,
        experimental=True,
        idle="it is of the vendor's own installations; samba-port inspect shows what a PEF needs",
    ),
    Argument(
        "verbose_report",
        "file for more",
        commands=RUNNING,
        experimental=True,
        idle="it is of the vendor's own installations; samba-port inspect shows what a PEF needs",
    ),
    Argument(
        "tensormem",
        "file with tensors",
        commands=RUNNING,
        experimental=True,
        idle="it is of the vendor's own installations; samba.session.get_tensors reads tensors",
    ),
)

_IN_ORDER: Final = (
    *_GENERAL,
    *_COMPILING,
    *(_ROWS[name] for name in ("optim_level", "use_o1_default_rules")),
    *(_ROWS[name] for name in ("enable_stochastic_rounding", "enable_safe_stochastic_rounding")),
    *_HINTS,
    *_RUNNING,
)

_LISTED: Final = frozenset(row.name for row in _IN_ORDER)
ARGUMENTS: Final = (
    # The order of --help is written out: people look for a row among its like.
    *_IN_ORDER,
    # An option that is new has a row without a place in the order.
    *(row for name, row in _ROWS.items() if name not in _LISTED),
)
"""All rows, in the order of ``--help``."""


def arguments_of(command: Command) -> tuple[Argument, ...]:
    """Return the rows that a sub-command takes.

    Args:
        command: Any of them.
    """
    return tuple(argument for argument in ARGUMENTS if command in argument.commands)


def given_hints(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hints among settings that differ from their defaults.

    Args:
        settings: By name; those of the program's own are left out, and so are two that take effect
            together.
    """
    stated = {
        argument.name: argument
        for argument in ARGUMENTS
        if argument.hint and settings.get(argument.name, argument.default) != argument.default
        # Two hints of SambaFlow's switch stochastic rounding here, too.
        if not stated_roundings({argument.name: settings[argument.name]})  # which take effect
    }
    return {
        name: settings[name] for name, argument in stated.items() if argument.beside not in stated
    }


OTHER_IDLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "visualize": "no plots are drawn; utils.tensorboard_debug writes what differs",
        "use_sambaloader": "every run that is measured has the same inputs, which no loader reads",
        "n_chips": "a PEF knows for how many RDUs it was compiled",
        "use_legacy_names": "names are always those of the module tree",
    }
)
"""Why an argument of a function of ``samba.utils`` or the session has no effect, by its name."""


AFTER_COMPILING: Final = "the PEF was compiled already; samba-port inspect says with what"
"""Why an argument of the compiler has no effect where a PEF is loaded."""

_AT_ANOTHER_LEVEL: Final = dict.fromkeys(
    ("optimization_rules", "use_o1_default_rules"),
    "rules of fusion count at o1: give --o1, or optim_level: o1, too",
)
"""Why an argument of one level has no effect at another, by its name."""


@functools.cache
def tell_idle(name: str) -> None:
    """Log that an argument which was given has no effect, once in a process.

    Args:
        name: Attribute of the Namespace or keyword of a function, as the tables have it.
    """
    rows = {argument.name: argument.idle for argument in ARGUMENTS if argument.idle}
    # Rows last: what a table of arguments says of itself counts before what is said of others.
    reasons = {**OTHER_IDLE, **_AT_ANOTHER_LEVEL, **rows}
    LOGGER.warning("%s has no effect: %s", name, reasons.get(name, AFTER_COMPILING))
