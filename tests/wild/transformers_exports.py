"""Models of transformers with what they are used with: caches, masks and encoders."""

from __future__ import annotations

from typing import Any

import onnx

from tests.wild.torch_exports import DYNAMO, SCRIPT, written

_SMALL = {"vocab_size": 60, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}


def _t5_encoder() -> onnx.ModelProto:
    import torch
    from transformers import T5Config, T5EncoderModel

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0
    )
    model = T5EncoderModel(config).eval()

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
            return self.model(input_ids=x, attention_mask=mask).last_hidden_state

    tokens = torch.randint(0, 60, (2, 7))
    axes = {"x": {0: "batch", 1: "sequence"}, "mask": {0: "batch", 1: "sequence"}}
    return written(
        Encoder(),
        (tokens, torch.ones_like(tokens)),
        dynamo=False,
        opset=17,
        names=("x", "mask"),
        axes=axes,
    )


def _llama_with_cache(*, dynamo: bool) -> onnx.ModelProto:
    """One step of generation: a token, and keys and values of those before it."""
    import torch
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        **_SMALL, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=32
    )
    model = LlamaForCausalLM(config).eval()

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self,
            x: torch.Tensor,
            mask: torch.Tensor,
            keys_0: torch.Tensor,
            values_0: torch.Tensor,
            keys_1: torch.Tensor,
            values_1: torch.Tensor,
        ) -> Any:
            cache = DynamicCache(config=config)
            cache.update(keys_0, values_0, 0)
            cache.update(keys_1, values_1, 1)
            done = self.model(
                input_ids=x, attention_mask=mask, past_key_values=cache, use_cache=True
            )
            layers = done.past_key_values.layers
            kept = [tensor for layer in layers for tensor in (layer.keys, layer.values)]
            return done.logits, *kept

    past = [torch.randn(2, 2, 5, 8) for _ in range(4)]
    tokens = torch.randint(0, 60, (2, 1))
    names = ("x", "mask", "keys_0", "values_0", "keys_1", "values_1")
    axes = {"mask": {1: "total"}} | {name: {2: "past"} for name in names[2:]}
    return written(
        Step(),
        (tokens, torch.ones(2, 6, dtype=torch.int64), *past),
        dynamo=dynamo,
        opset=18 if dynamo else 17,
        names=names,
        axes=None if dynamo else axes,
    )


def _clip_text() -> onnx.ModelProto:
    import torch
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    torch.manual_seed(0)
    config = CLIPTextConfig(
        **_SMALL,
        intermediate_size=48,
        max_position_embeddings=16,
        projection_dim=12,
        eos_token_id=59,
    )
    model = CLIPTextModelWithProjection(config).eval()

    class Text(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> Any:
            return self.model(input_ids=x).text_embeds

    return written(Text(), (torch.randint(0, 60, (2, 9)),), dynamo=True, opset=21, optimize=False)


def _wav2vec2() -> onnx.ModelProto:
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    torch.manual_seed(0)
    config = Wav2Vec2Config(
        **_SMALL,
        intermediate_size=48,
        conv_dim=(16, 16),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    model = Wav2Vec2ForCTC(config).eval()

    class Listener(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> Any:
            return self.model(input_values=x).logits

    return written(Listener(), (torch.randn(1, 400),), dynamo=True, opset=20)


SCRIPT.add("t5_encoder-dynamic", _t5_encoder, dims={"batch": 2, "sequence": 7})
SCRIPT.add(
    "llama_with_cache-dynamic",
    lambda: _llama_with_cache(dynamo=False),
    dims={"past": 5, "total": 6},
)
DYNAMO.add("llama_with_cache", lambda: _llama_with_cache(dynamo=True))
DYNAMO.add("clip_text-raw, opset21", _clip_text)
DYNAMO.add("wav2vec2", _wav2vec2)
