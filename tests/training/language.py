"""Networks for sequences, in tiny sizes: recurrent ones, and transformers of each kind."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from tests.training.trajectory import Case, adamw, sgd

BATCH, LENGTH, WORDS = 2, 7, 40


class Recurrent(nn.Module):
    """Embedding, a stack of recurrent layers, and a linear layer over all states."""

    def __init__(self, kind: type[nn.RNNBase], layers: int, both_ways: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 6)
        self.layers = kind(6, 5, layers, batch_first=True, bidirectional=both_ways)
        self.head = nn.Linear(10 if both_ways else 5, 4)

    def forward(self, tokens: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        states, _ = self.layers(self.embedding(tokens))
        logits = self.head(states.mean(1))
        return F.cross_entropy(logits, label), logits


class BertWithThreeHeads(nn.Module):
    """Classes of the sequence, tags of its tokens, and a number: one loss each."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=WORDS,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
        self.encoder = BertModel(config)
        self.classes = nn.Linear(16, 3)
        self.tags = nn.Linear(16, 5)
        self.number = nn.Linear(16, 1)

    def forward(
        self, tokens: Tensor, mask: Tensor, label: Tensor, tags: Tensor, number: Tensor
    ) -> tuple[Tensor, ...]:
        made = self.encoder(input_ids=tokens, attention_mask=mask)
        classes = self.classes(made.pooler_output)
        tagged = self.tags(made.last_hidden_state)
        losses = (
            F.cross_entropy(classes, label),
            F.cross_entropy(tagged.flatten(0, 1), tags.flatten(), ignore_index=-100),
            F.mse_loss(self.number(made.pooler_output).squeeze(-1), number),
        )
        return (*losses, classes, tagged)


class Labelled(nn.Module):
    """A network of transformers that computes its own loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        made = self.network(**inputs, use_cache=False)
        return made.loss, made.logits


class Decoder(Labelled):
    """One that continues texts."""

    def forward(  # type: ignore[override]  # named, as the session's inputs are
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels)


class Translator(Labelled):
    """One that turns a text into another."""

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels)


class Listener(Labelled):
    """One that turns sounds into text."""

    def forward(  # type: ignore[override]
        self, input_features: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        return super().forward(input_features=input_features, labels=labels)


class Viewer(nn.Module):
    """A vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        config = ViTConfig(
            num_labels=5,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=16,
            patch_size=8,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.network = ViTForImageClassification(config)

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(pixel_values=image).logits
        return F.cross_entropy(logits, label), logits


def gpt2() -> nn.Module:
    config = GPT2Config(
        vocab_size=WORDS,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
    )
    return Decoder(GPT2LMHeadModel(config))


def llama() -> nn.Module:
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
        tie_word_embeddings=True,
    )
    return Decoder(LlamaForCausalLM(config))


def t5() -> nn.Module:
    config = T5Config(
        vocab_size=WORDS,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=2,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    return Translator(T5ForConditionalGeneration(config))


def whisper() -> nn.Module:
    config = WhisperConfig(
        vocab_size=WORDS,
        num_mel_bins=4,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_source_positions=10,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=1,
        dropout=0.0,
        # Makes masks on the host, with numpy, whenever the model trains.
        apply_spec_augment=False,
    )
    return Listener(WhisperForConditionalGeneration(config))


def words() -> Tensor:
    return torch.randint(1, WORDS, (BATCH, LENGTH))


def sentences() -> dict[str, Tensor]:
    return {"tokens": words(), "label": torch.randint(0, 4, (BATCH,))}


def padded() -> Tensor:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[0, LENGTH - 2 :] = 0
    return mask


def continued() -> dict[str, Tensor]:
    tokens, mask = words(), padded()
    return {
        "input_ids": tokens,
        "attention_mask": mask,
        "labels": tokens.masked_fill(mask == 0, -100),
    }


def tagged() -> dict[str, Tensor]:
    return {
        "tokens": words(),
        "mask": padded(),
        "label": torch.randint(0, 3, (BATCH,)),
        "tags": torch.randint(0, 5, (BATCH, LENGTH)).masked_fill(padded() == 0, -100),
        "number": torch.randn(BATCH),
    }


def three_adamw(optim: object, model: nn.Module) -> list[Optimizer]:
    """One optimizer each for matrices and the rest of the encoder, and one for the heads."""
    assert isinstance(model, BertWithThreeHeads)
    encoder = list(model.encoder.parameters())
    heads = [*model.classes.parameters(), *model.tags.parameters(), *model.number.parameters()]
    groups: Sequence[tuple[list[nn.Parameter], float]] = (
        ([p for p in encoder if p.dim() > 1], 0.01),
        ([p for p in encoder if p.dim() <= 1], 0.0),
        (heads, 0.1),
    )
    return [
        optim.AdamW(group, lr=1e-3, betas=(0.9, 0.99), eps=1e-3, weight_decay=decay)  # type: ignore[attr-defined]
        for group, decay in groups
    ]


CASES = (
    Case("lstm", lambda: Recurrent(nn.LSTM, 1, False), sentences, sgd),
    Case("deep two-way lstm", lambda: Recurrent(nn.LSTM, 2, True), sentences, adamw),
    Case("gru", lambda: Recurrent(nn.GRU, 1, False), sentences, sgd),
    Case("deep two-way gru", lambda: Recurrent(nn.GRU, 2, True), sentences, adamw),
    Case("deep two-way rnn", lambda: Recurrent(nn.RNN, 2, True), sentences, adamw),
    Case(
        "vit",
        Viewer,
        lambda: {"image": torch.randn(2, 3, 16, 16), "label": torch.randint(0, 5, (2,))},
        adamw,
    ),
    Case("bert with three heads", BertWithThreeHeads, tagged, three_adamw, losses=3),
    Case("gpt2", gpt2, continued, adamw),
    Case("llama", llama, continued, adamw),
    Case("t5", t5, continued, adamw),
    Case(
        "whisper",
        whisper,
        lambda: {"input_features": torch.randn(BATCH, 4, 20), "labels": words()},
        adamw,
    ),
)
