"""Transformers' architectures from configurations, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import transformers as tr
from torch import nn

Built = tuple[nn.Module, dict[str, torch.Tensor]]
"""A module, and its inputs by name."""

IDS = torch.arange(12).reshape(2, 6) * 7 % 99


class Logits(nn.Module):
    """Calls a transformers model and returns its first output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]


class Step(nn.Module):
    """One decoder step: tokens and the cache in, logits and the longer cache out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = list(zip(past[::2], past[1::2], strict=True))
        cache = tr.DynamicCache(pairs)
        out = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        flat = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
        return (out.logits, *flat)


class Named(nn.Module):
    """Calls a transformers model with named inputs and returns some of its outputs."""

    def __init__(self, model: nn.Module, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def forward(self, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.model(**dict(zip(self.inputs, arrays, strict=True)), return_dict=True)
        return tuple(result[name] for name in self.outputs)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def named(model: nn.Module, inputs: dict[str, Any], *outputs: str) -> Built:
    return Named(model, tuple(inputs), outputs), inputs


@dataclass(frozen=True)
class Architectures:
    """Two layers of every architecture.

    Attributes:
        width: Of the hidden state; a fourth of it is a head's.
        vocabulary: Number of tokens.
    """

    width: int = 32
    vocabulary: int = 99

    @cached_property
    def patches(self) -> dict[str, Any]:
        sizes = {"hidden_size": self.width, "intermediate_size": self.width * 3 // 2}
        depth = {"num_hidden_layers": 2, "num_attention_heads": 4}
        return {**sizes, **depth, "image_size": 16, "patch_size": 8}

    @cached_property
    def text(self) -> dict[str, Any]:
        common = {k: v for k, v in self.patches.items() if k not in ("image_size", "patch_size")}
        return {**common, "vocab_size": self.vocabulary, "max_position_embeddings": 64}

    @property
    def models(self) -> dict[str, Callable[[], Built]]:
        size = self.width // 4
        grouped = {"num_key_value_heads": 2}
        gemma = {"head_dim": size, "query_pre_attn_scalar": size, "sliding_window": 4}
        gpt2 = {"n_embd": self.width, "n_layer": 2, "n_head": 4, "n_positions": 64}
        distilbert = {"dim": self.width, "n_layers": 2, "n_heads": 4}
        distilbert |= {"hidden_dim": self.width * 3 // 2}
        # As it is exported: of all ways to run experts, the one without a loop over them.
        experts = {"num_local_experts": 4, "experts_implementation": "batched_mm"}
        deberta = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
        deberta |= {"position_buckets": 4, "norm_rel_ebd": "layer_norm", "share_att_key": True}
        local = {"local_attention": 4, "global_attn_every_n_layers": 2, "pad_token_id": 0}
        return {
            "bert": lambda: self.encoder(tr.BertConfig, tr.BertModel),
            "distilbert": lambda: self.encoder(
                tr.DistilBertConfig, tr.DistilBertModel, **distilbert
            ),
            "gpt2": lambda: self.decoder(tr.GPT2Config, tr.GPT2LMHeadModel, **gpt2),
            "llama": lambda: self.decoder(tr.LlamaConfig, tr.LlamaForCausalLM, **grouped),
            "qwen2": lambda: self.decoder(tr.Qwen2Config, tr.Qwen2ForCausalLM, **grouped),
            "phi3": lambda: self.decoder(
                tr.Phi3Config, tr.Phi3ForCausalLM, **grouped, pad_token_id=0
            ),
            "gemma2": lambda: self.decoder(
                tr.Gemma2Config, tr.Gemma2ForCausalLM, **grouped, **gemma
            ),
            "gptneox": lambda: self.decoder(tr.GPTNeoXConfig, tr.GPTNeoXForCausalLM),
            "mixtral": lambda: self.decoder(
                tr.MixtralConfig, tr.MixtralForCausalLM, **grouped, **experts
            ),
            "modernbert": lambda: self.encoder(tr.ModernBertConfig, tr.ModernBertModel, **local),
            "deberta": lambda: self.encoder(tr.DebertaV2Config, tr.DebertaV2Model, **deberta),
            "wav2vec2": self.wav2vec2,
            "t5": self.t5,
            "whisper": self.whisper,
            "vit": self.vit,
            "clip": self.clip,
        }

    def encoder(self, config: type, model: type, **options: Any) -> Built:
        made = model(config(**{**self.text, **options}, attn_implementation="eager"))
        mask = torch.ones_like(IDS)
        mask[1, 4:] = 0
        return Logits(made), {"input_ids": IDS, "attention_mask": mask}

    def decoder(self, config: type, model: type, **options: Any) -> Built:
        made = model(config(**{**self.text, **options}, attn_implementation="eager"))
        shape = (2, options.get("num_key_value_heads", 4), 5, self.width // 4)
        inputs: dict[str, Any] = {"input_ids": IDS[:, :2]}
        for layer in range(2):
            for part in ("key", "value"):
                inputs[f"past_{layer}_{part}"] = torch.randn(shape) * 0.3
        return Step(made), inputs

    def t5(self) -> Built:
        sizes: dict[str, Any] = {"vocab_size": self.vocabulary, "d_model": self.width}
        sizes |= {"d_kv": self.width // 4, "d_ff": self.width * 3 // 2}
        depth: dict[str, Any] = {"num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
        config = tr.T5Config(**sizes, **depth, attn_implementation="eager")
        inputs = {"input_ids": IDS, "decoder_input_ids": IDS[:, :3]}
        return named(tr.T5ForConditionalGeneration(config), inputs, "logits")

    def whisper(self) -> Built:
        sizes: dict[str, Any] = {"vocab_size": self.vocabulary, "d_model": self.width}
        for part in ("encoder", "decoder"):
            sizes |= {f"{part}_layers": 2, f"{part}_attention_heads": 4}
            sizes[f"{part}_ffn_dim"] = self.width * 3 // 2
        tokens: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        tokens |= {"decoder_start_token_id": 1, "suppress_tokens": None, "num_mel_bins": 8}
        room: dict[str, Any] = {"max_source_positions": 16, "max_target_positions": 16}
        config = tr.WhisperConfig(**sizes, **tokens, **room, attn_implementation="eager")
        inputs = {"input_features": noise(2, 8, 32), "decoder_input_ids": IDS[:, :3]}
        return named(tr.WhisperForConditionalGeneration(config), inputs, "logits")

    def wav2vec2(self) -> Built:
        sizes = {k: v for k, v in self.text.items() if k != "vocab_size"}
        layers: dict[str, Any] = {"conv_dim": [16, 16], "conv_stride": [5, 2]}
        layers |= {"conv_kernel": [10, 3], "num_feat_extract_layers": 2}
        places = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
        config = tr.Wav2Vec2Config(**sizes, **layers, **places, attn_implementation="eager")
        inputs = {"input_values": noise(2, 200)}
        return named(tr.Wav2Vec2Model(config), inputs, "last_hidden_state")

    def vit(self) -> Built:
        model = tr.ViTModel(tr.ViTConfig(**self.patches, attn_implementation="eager"))
        inputs = {"pixel_values": noise(2, 3, 16, 16)}
        return named(model, inputs, "last_hidden_state", "pooler_output")

    def clip(self) -> Built:
        text = {**self.text, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        parts = {"text_config": text, "vision_config": self.patches, "projection_dim": 16}
        model = tr.CLIPModel(tr.CLIPConfig(**parts, attn_implementation="eager"))
        images = {"pixel_values": noise(3, 3, 16, 16)}
        inputs = {"input_ids": IDS, **images, "attention_mask": torch.ones_like(IDS)}
        return named(model, inputs, "logits_per_image", "text_embeds", "image_embeds")
