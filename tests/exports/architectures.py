"""The networks that ``export.py`` writes: transformers' architectures from tiny configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tr
from torch import nn

TINY: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
PATCHES: dict[str, Any] = {
    **{name: TINY[name] for name in TINY if name not in ("vocab_size", "max_position_embeddings")},
    "image_size": 16,
    "patch_size": 8,
}
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


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, layer norm over channels last, and two pointwise layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(nn.functional.gelu(self.widen(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


class Residual(nn.Module):
    """ResNet's basic block, with a strided projection."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, 2, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.skip = nn.Sequential(
            nn.Conv2d(inside, outside, 1, 2, bias=False), nn.BatchNorm2d(outside)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class Inverted(nn.Module):
    """MobileNetV2's block with a squeeze-and-excitation in the middle, as in MobileNetV3."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 4 * width
        self.expand = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.Hardswish(),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, inner, 1), nn.Hardsigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.squeeze(y))


class Recurrent(nn.Module):
    """A recurrent layer that returns its sequence and its last state."""

    def __init__(self, layer: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.layer = layer(8, 16, batch_first=True, bidirectional=True, num_layers=2, **options)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.layer(x)
        return (y, *(state if isinstance(state, tuple) else (state,)))


def cnn(*blocks: nn.Module) -> nn.Sequential:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)]
    stem = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, *head)


def encoder(config: type, model: type, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    made = model(config(**{**TINY, **options}, attn_implementation="eager"))
    mask = torch.ones_like(IDS)
    mask[1, 4:] = 0
    return Logits(made), {"input_ids": IDS, "attention_mask": mask}


def decoder(config: type, model: type, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    made = model(config(**{**TINY, **options}, attn_implementation="eager"))
    heads = options.get("num_key_value_heads", 4)
    inputs: dict[str, Any] = {"input_ids": IDS[:, :2]}
    for layer in range(2):
        for part in ("key", "value"):
            shape = (2, heads, 5, 8)
            inputs[f"past_{layer}_{part}"] = torch.randn(shape) * 0.3
    return Step(made), inputs


def named(
    model: nn.Module, inputs: dict[str, Any], *outputs: str
) -> tuple[nn.Module, dict[str, Any]]:
    return Named(model, tuple(inputs), outputs), inputs


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def t5() -> tuple[nn.Module, dict[str, Any]]:
    sizes: dict[str, Any] = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 48}
    depth: dict[str, Any] = {"num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    config = tr.T5Config(**sizes, **depth, attn_implementation="eager")
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS[:, :3]}
    return named(tr.T5ForConditionalGeneration(config), inputs, "logits")


def whisper() -> tuple[nn.Module, dict[str, Any]]:
    sizes: dict[str, Any] = {"vocab_size": 99, "num_mel_bins": 8, "d_model": 32}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_layers": 2, f"{part}_attention_heads": 4, f"{part}_ffn_dim": 48}
    tokens: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    tokens |= {"decoder_start_token_id": 1, "suppress_tokens": None}
    room: dict[str, Any] = {"max_source_positions": 16, "max_target_positions": 16}
    config = tr.WhisperConfig(**sizes, **tokens, **room, attn_implementation="eager")
    inputs = {"input_features": noise(2, 8, 32), "decoder_input_ids": IDS[:, :3]}
    return named(tr.WhisperForConditionalGeneration(config), inputs, "logits")


def vit() -> tuple[nn.Module, dict[str, Any]]:
    model = tr.ViTModel(tr.ViTConfig(**PATCHES, attn_implementation="eager"))
    return named(model, {"pixel_values": noise(2, 3, 16, 16)}, "last_hidden_state", "pooler_output")


def clip() -> tuple[nn.Module, dict[str, Any]]:
    text = {**TINY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = tr.CLIPConfig(
        text_config=text, vision_config=PATCHES, projection_dim=16, attn_implementation="eager"
    )
    images = {"pixel_values": noise(3, 3, 16, 16)}
    inputs = {"input_ids": IDS, **images, "attention_mask": torch.ones_like(IDS)}
    return named(tr.CLIPModel(config), inputs, "logits_per_image", "text_embeds", "image_embeds")


IMAGE = {"x": noise(2, 3, 32, 32)}
SERIES = {"x": noise(2, 7, 8)}
GPT2: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
GROUPED: dict[str, Any] = {"num_key_value_heads": 2}
GEMMA: dict[str, Any] = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4}

MODELS: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
    "bert": lambda: encoder(tr.BertConfig, tr.BertModel),
    "distilbert": lambda: encoder(
        tr.DistilBertConfig, tr.DistilBertModel, dim=32, n_layers=2, n_heads=4, hidden_dim=48
    ),
    "gpt2": lambda: decoder(tr.GPT2Config, tr.GPT2LMHeadModel, **GPT2),
    "llama": lambda: decoder(tr.LlamaConfig, tr.LlamaForCausalLM, **GROUPED),
    "qwen2": lambda: decoder(tr.Qwen2Config, tr.Qwen2ForCausalLM, **GROUPED),
    "phi3": lambda: decoder(tr.Phi3Config, tr.Phi3ForCausalLM, **GROUPED, pad_token_id=0),
    "gemma2": lambda: decoder(tr.Gemma2Config, tr.Gemma2ForCausalLM, **GROUPED, **GEMMA),
    "t5": t5,
    "whisper": whisper,
    "vit": vit,
    "clip": clip,
    "resnet": lambda: (cnn(Residual(16, 16)), IMAGE),
    "mobilenet": lambda: (cnn(Inverted(16)), IMAGE),
    "convnext": lambda: (cnn(ConvNeXtBlock(16)), IMAGE),
    "lstm": lambda: (Recurrent(nn.LSTM), SERIES),
    "gru": lambda: (Recurrent(nn.GRU), SERIES),
    "rnn": lambda: (Recurrent(nn.RNN, nonlinearity="relu"), SERIES),
}
