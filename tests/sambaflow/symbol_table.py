"""Every import path and symbol that SambaFlow's documents and published programs name.

Transcribed from the specification of SambaFlow's interface (its sections are the comments), which says
for each where it is documented or in which program it was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SYMBOLS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # 1. Functions of the package itself.
        "sambaflow.samba": """
            randn randint rand zeros ones empty randn_like from_torch_tensor from_torch
            from_torch_tensor_ from_torch_model_ from_torch_model from_torch_ from_named_dict to_torch to_torch_tensor
            add mul div log cat sigmoid addmm triu_fill groupby set_seed patched_torch is_internal
            SambaTensor SambaParameter session utils optim nn functional directives env sambatensor
            abs sub matmul bmm cumsum argmax bitwise_not cross_entropy softmax relu gelu reshape
            permute transpose
        """,
        # 2. Tensors; their members are below.
        "sambaflow.samba.sambatensor": "SambaTensor from_torch_tensor DimInfo",
        "sambaflow.samba.nn": "Module Linear Conv2d CrossEntropyLoss parameter",
        "sambaflow.samba.nn.parameter": "SambaParameter",
        # 3. The session; its members are below.
        "sambaflow.samba.session": "SambaSession",
        # 4. Helpers.
        "sambaflow.samba.utils": """
            trace_graph trace_multigraph init_output_grads set_seed get_file_dir assert_close
            measure_performance measure_sections weight_norm_ get_rank get_world_size is_main_process
            fix_rdu_affinity create_mac_resource_report SNType compile utils argparser common
            pef_utils dataset benchmark_acc numeric checkpoint trainer tensorboard_debug
        """,
        "sambaflow.samba.utils.utils": """
            trace_graph trace_multigraph init_output_grads assert_close measure_performance
        """,
        "sambaflow.samba.utils.checkpoint": "load_sharded_checkpoint",
        "sambaflow.samba.utils.trainer.samba": "train",
        "sambaflow.samba.utils.trainer.torch": "train",
        "sambaflow.samba.utils.dataset.mnist": "dataset_transform prepare_dataloader",
        "sambaflow.samba.utils.benchmark_acc": "AccuracyReport",
        "sambaflow.samba.utils.tensorboard_debug": "dump_accuracy_debug_info",
        "sambaflow.samba.utils.numeric": "MAX_BF16_TRUNCATE_NORMAL_REL",
        # 5. and 6. The command line.
        "sambaflow.samba.utils.argparser": "parse_app_args parse_yaml_to_args SambaConfig",
        "sambaflow.samba.schema.snconfig": "SNConfig",
        "sambaflow.samba.utils.common": "common_app_driver",
        # 7. Metadata.
        "sambaflow.samba.utils.pef_utils": """
            get_pefmeta get_pefmeta_dict get_pef_info PefInfoStruct
        """,
        # 8. Optimizers.
        "sambaflow.samba.optim": "AdamW SGD SparseAdamW Adam Adagrad adam",
        "sambaflow.samba.optim.adam": "AdamW Adam",
        # 10. Functions.
        "sambaflow.samba.functional": """
            abs add div addmm bmm cumsum argmax bitwise_not cross_entropy cat sn_gather sn_scatter
            sn_reduce sn_zipmapreduce sn_fma stir
        """,
        "sambaflow.samba.functional.arithmetic": "abs add div",
        "sambaflow.samba.functional.tensorarithmetic": "addmm bmm cumsum",
        "sambaflow.samba.functional.reduce": "argmax",
        "sambaflow.samba.functional.logical": "bitwise_not",
        "sambaflow.samba.functional.loss": "cross_entropy",
        "sambaflow.samba.functional.tensorops": "cat",
        "sambaflow.samba.functional.stir": """
            sn_imm sn_iteridx sn_select sn_zipmapreduce sn_gather sn_scatter sn_multinomial
        """,
        "sambaflow.samba.sn_private": "sn_gather sn_scatter sn_multinomial",
        # 11. and 12. Graphs and other modules.
        "sambaflow.samba.graph": "FwdGraph SambaGraph",
        "sambaflow.samba.sambaloader": "SambaLoader DataLoaderException",
        "sambaflow.samba.directives": "op_fusion sdpa_directives",
        "sambaflow.samba.lazy_param": "lazy_param RNGProvider RNGProviderFactory",
        "sambaflow.samba.materialize": "materialize",
        "sambaflow.samba.profiler": "Profiler",
        "sambaflow.samba.argconf.args": "CommonArgs CompileArgs RunArgs",
        "sambaflow.samba.env": """
            use_mock_samba_runtime enable_conv_grad_accum_stoc enable_addbias_grad_accum_stoc
            disable_sgd_stoc
        """,
        "sambaflow.samba.test": "TestWithGold consistency_test",
        "sambaflow.logging": "samba_logger",
        "sambaflow.sambacollections": "OrderedSet",
        "sambaflow": "__version__ is_demo samba",
        "sambaflow.mac.metadata": "ConvTilingMetadata TilingMetadata",
        "sambaflow.models.unet": "UNet",
        "sambaflow.samba.experiment_logger": "AccMeter DisplayMeter CountMeter Logger",
        "sambaflow.frameworks.quantized.quantized_linear": "QuantizedLinear",
        "sambaflow.online_inference_service.sn_sqs_handler": "Queue",
    }
)
"""Names by the module that programs import them from."""

MEMBERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # 2.2, 2.3 and what programs use besides.
        "sambaflow.samba.SambaTensor": """
            __getitem__ __setitem__ backward bfloat16 float bool int long short to type type_as view_as
            clear_data cpu cpu_ rdu data_ptr dim ndimension numel nelement element_size stride size item
            is_floating_point materialize_ new_empty new_full new_ones new_zeros requires_grad_ reusable
            torch torch_tensor is_fast_access permute reshape relu abs sum eq view transpose unsqueeze
            squeeze expand repeat masked_fill mean max softmax contiguous tolist numpy T data device
            dtype fast_access grad materializer materializer_provided ndim requires_grad shape sn_data
            sn_grad sn_grad_name sn_name sn_region_name host_memory mem_type has_data batch_dim
            named_dims name
        """,
        "sambaflow.samba.SambaParameter": """
            data grad sn_data sn_grad torch torch_tensor shape dtype requires_grad sn_name
        """,
        # 3, with what programs use besides.
        "sambaflow.samba.session": """
            compile add_graph compile_multigraph init_multigraph_runtime run get_tensors
            get_tensors_by_name get_samba_tensor_by_name update_tensor to_cpu to_cpu_ to_rdu to_device
            sync_buffers_to_cpu sync_buffers_to_rdu get_argin_names get_dropout_rate_argin_names
            get_dropout_seed_argin_names get_weight_names get_section_types enable_lazy_param
            disable_lazy_param use_lazy_param enable_pinned_memory disable_pinned_memory
            use_pinned_memory start_runtime_profile end_runtime_profile samba_profile
            start_samba_profile end_samba_profile profiler reset reset_random_generator setup
            disable_graphamp use_abexit atexit_register use_legacy_names use_static_functional tracing
            optim_dict _traced_tensors buffer_dict tensor_dict ctx dynamic_dims create_dynamic_dim
            load_dynamic_dims_config _add_directives _context_directives add_aux_tensor
            is_valid_aux_tensor_name SambaSession
        """,
        "sambaflow.samba.session.ctx": "set_tensors",
        "sambaflow.samba.session.profiler": """
            start_event end_event event print_statistics start_profile stop_profile _get_iter_times
            get_latencies get_throughputs
        """,
        "sambaflow.samba.lazy_param.RNGProvider": "normal __call__",
        "sambaflow.samba.lazy_param.RNGProviderFactory": "build_provider",
        "sambaflow.samba.argconf.args.RunArgs": "model_fields model_dump",
        "sambaflow.samba.utils.SNType": "INT32 UINT16 to_torch_reference_type",
        "sambaflow.samba.utils.benchmark_acc.AccuracyReport": "save",
        "sambaflow.samba.schema.snconfig.SNConfig": "model_fields",
        "sambaflow.samba.utils.argparser.SambaConfig": "get_all_params",
        "sambaflow.samba.test.TestWithGold": "test consistency_test",
        "sambaflow.samba.optim.AdamW": """
            add_param_group cpu rdu state_dict load_state_dict zero_grad step
        """,
        "sambaflow.samba.optim.SGD": """
            add_param_group cpu rdu state_dict load_state_dict zero_grad step
        """,
        "sambaflow.logging.samba_logger": "warning info debug error",
        "sambaflow.mac.metadata.ConvTilingMetadata": "key",
        "sambaflow.mac.metadata.TilingMetadata": "key",
    }
)
"""Attributes by the object that programs ask for them."""

REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sambaflow.models.unet.UNet": "a model that is not published",
        "sambaflow.samba.experiment_logger.AccMeter": "named by one program, without its rules",
        "sambaflow.samba.experiment_logger.CountMeter": "named by one program, without its rules",
        "sambaflow.samba.experiment_logger.DisplayMeter": "named by one program, without its rules",
        "sambaflow.samba.experiment_logger.Logger": "named by one program, without its rules",
        "sambaflow.frameworks.quantized.quantized_linear.QuantizedLinear": "rounding not published",
        "sambaflow.online_inference_service.sn_sqs_handler.Queue": "a service of the vendor's",
        "sambaflow.samba.groupby": "its semantics are not public",
        "sambaflow.samba.optim.Adagrad": "its name is all that is published",
        "sambaflow.samba.optim.SparseAdamW": "its name is all that is published",
        "sambaflow.samba.utils.create_mac_resource_report": "for the vendor's own installations",
        "sambaflow.samba.utils.trainer.samba.train": "imported by programs, called by none",
        "sambaflow.samba.utils.trainer.torch.train": "imported by programs, called by none",
    }
)
"""What can be imported and not called, and why."""

ABSENT_MEMBERS: Final = ("sambaflow.samba.SambaTensor.dsts",)
"""Attributes that one program reads, and of which nothing is known; reading one is an AttributeError."""
