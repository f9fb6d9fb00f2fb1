"""Decoders of text: with attention, with states, and mixtures of experts."""

from __future__ import annotations

from typing import Final

from tests.architectures.record import Architecture, plain
from tests.architectures.tasks import Task

_DECODER: Final = "decoder"
_EXPERTS: Final = "mixture of experts"
_STATES: Final = "state space"
_LOOP: Final = "`torch.export` does not get past a loop over the experts that were chosen."
_COUNTS: Final = (
    "It takes the number of tokens of each expert out of a tensor (`tolist()`): compiling warns of "
    "the line, and the PEF is right for the inputs that were compiled only."
)
_LATENT: Final = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "head_dim": None,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
"""Latent attention."""

ARCHITECTURES: Final = (
    *plain(
        _DECODER,
        Task.CAUSAL,
        "apertus arcee beam bert-generation biogpt bitnet bloom cohere cohere2 cpmant ctrl cwm "
        "diffllama doge ernie4_5 exaone4 flint gemma gemma2 gemma3_text glm glm4 gpt-sw3 gpt2 "
        "gpt_bigcode gpt_neox gpt_neox_japanese granite granite_swa helium hrm_text "
        "hunyuan_v1_dense hyperclovax internlm3 iquestcoder jais2 llama ministral ministral3 mistral "
        "modernbert-decoder moshi mpt nanochat nemotron olmo olmo2 olmo3 openai-gpt opt persimmon "
        "phi phi3 qwen2 qwen3 seed_oss smollm3 stablelm starcoder2 trocr vaultgemma xglm kolibri1 lfm3",
    ),
    Architecture("falcon", _DECODER, Task.CAUSAL, {"head_dim": None}),
    Architecture("gptj", _DECODER, Task.CAUSAL, {"rotary_dim": 4}),
    Architecture("codegen", _DECODER, Task.CAUSAL, {"rotary_dim": 4}),
    Architecture(
        "gpt_neo",
        _DECODER,
        Task.CAUSAL,
        {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    ),
    Architecture("minicpm3", _DECODER, Task.CAUSAL, _LATENT),
    Architecture("youtu", _DECODER, Task.CAUSAL, _LATENT),
    Architecture(
        "imagegpt",
        _DECODER,
        Task.CAUSAL,
        {"vocab_size": 99},
        model="ImageGPTForCausalImageModeling",
    ),
    *plain(
        _EXPERTS,
        Task.CAUSAL,
        "afmoe aria_text cohere2_moe ernie4_5_moe exaone_moe flex_olmo glm4_moe gpt_oss granitemoe "
        "granitemoe_swa granitemoeshared hunyuan_v1_moe hy_v3 laguna llama4_text mellum "
        "mimo_v2_flash minimax_m2 mixtral olmoe qwen2_moe qwen3_moe solar_open "
        "deepseek_v4",
    ),
    Architecture(
        "phimoe",
        _EXPERTS,
        Task.CAUSAL,
        training_limit="It draws random numbers when it chooses experts.",
    ),
    Architecture("deepseek_v2", _EXPERTS, Task.CAUSAL, {**_LATENT, "topk_method": "greedy"}),
    Architecture("deepseek_v3", _EXPERTS, Task.CAUSAL, _LATENT),
    Architecture("glm4_moe_lite", _EXPERTS, Task.CAUSAL, _LATENT),
    Architecture("axk1", _EXPERTS, Task.CAUSAL, _LATENT),
    Architecture("axk2", _EXPERTS, Task.CAUSAL, _LATENT),
    Architecture(
        "dots1", _EXPERTS, Task.CAUSAL, {"n_group": 1, "topk_group": 1, "n_shared_experts": 1}
    ),
    Architecture(
        "dbrx",
        _EXPERTS,
        Task.CAUSAL,
        {
            "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8},
            "ffn_config": {
                "ffn_hidden_size": 48,
                "moe_num_experts": 4,
                "moe_top_k": 2,
                "hidden_size": 32,
            },
        },
        limit=_LOOP,
    ),
    Architecture("jetmoe", _EXPERTS, Task.CAUSAL, limit=_COUNTS),
    Architecture("lfm2_moe", _EXPERTS, Task.CAUSAL, {"layer_types": ["conv", "full_attention"]}),
    Architecture(
        "longcat_flash",
        _EXPERTS,
        Task.CAUSAL,
        {
            **_LATENT,
            "num_layers": 1,
            "num_hidden_layers": 2,
            "moe_topk": 2,
            "zero_expert_num": 2,
            "ffn_hidden_size": 48,
            "expert_ffn_hidden_size": 16,
            "head_dim": 8,
        },
        limit=_LOOP,
    ),
    *plain(
        _STATES,
        Task.CAUSAL,
        "falcon_mamba jamba lfm2 mamba minimax olmo_hybrid recurrent_gemma rwkv xlstm",
    ),
    Architecture(
        "bailing_hybrid",
        _STATES,
        Task.CAUSAL,
        trains="in float32, torch itself is off by 2e-5 or 1.5e-3, as it happens to order its sums",
    ),
    Architecture(
        "mamba2",
        _STATES,
        Task.CAUSAL,
        {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4, "state_size": 8},
    ),
    Architecture(
        "bamba",
        _STATES,
        Task.CAUSAL,
        {
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_n_groups": 2,
            "mamba_d_state": 8,
            "mamba_chunk_size": 4,
            "attn_layer_indices": [1],
        },
    ),
    Architecture(
        "granitemoehybrid",
        _STATES,
        Task.CAUSAL,
        {
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_n_groups": 2,
            "mamba_d_state": 8,
            "mamba_chunk_size": 4,
            "layer_types": ["mamba", "attention"],
        },
    ),
    Architecture(
        "falcon_h1",
        _STATES,
        Task.CAUSAL,
        {
            "mamba_d_ssm": 32,
            "mamba_n_heads": 4,
            "mamba_d_head": 8,
            "mamba_n_groups": 1,
            "mamba_d_state": 8,
            "mamba_chunk_size": 4,
        },
    ),
    Architecture(
        "nemotron_h",
        _STATES,
        Task.CAUSAL,
        {
            "mamba_num_heads": 4,
            "mamba_head_dim": 8,
            "n_groups": 1,
            "ssm_state_size": 8,
            "chunk_size": 4,
            "layers_block_type": ["mamba", "attention"],
            "num_hidden_layers": None,
        },
    ),
    Architecture(
        "qwen3_next",
        _STATES,
        Task.CAUSAL,
        {
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "full_attention"],
        },
        trains="in float32, torch itself loses 5e-4 of the loss in five steps, and the choice of an "
        "expert is as close",
    ),
    Architecture(
        "qwen3_5_text",
        _STATES,
        Task.CAUSAL,
        {
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    Architecture(
        "zamba",
        _STATES,
        Task.CAUSAL,
        {
            "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
            "num_hidden_layers": 3,
            "attention_hidden_size": 64,
            "attention_head_dim": 16,
            "n_mamba_heads": 2,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "num_key_value_heads": 4,
        },
    ),
    Architecture(
        "zamba2",
        _STATES,
        Task.CAUSAL,
        {
            "layers_block_type": ["mamba", "hybrid"],
            "attention_hidden_size": 64,
            "attention_head_dim": 16,
            "mamba_d_state": 8,
            "mamba_headdim": 8,
            "mamba_ngroups": 1,
            "n_mamba_heads": 8,
            "chunk_size": 4,
            "num_key_value_heads": 4,
            "adapter_rank": 4,
            "hybrid_layer_ids": [1],
        },
    ),
)
"""Records."""
