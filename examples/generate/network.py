"""The decoder that is trained, in torch: RMS norms, rotary positions, shared key heads, SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The decoder's dimensions."""

    vocabulary: int = 1024
    width: int = 192
    layers: int = 6
    heads: int = 6
    key_heads: int = 2
    inner: int = 512
    context: int = 1024
    theta: float = 10000.0
    epsilon: float = 1e-5

    @property
    def head(self) -> int:
        """Numbers per head."""
        return self.width // self.heads


def angles(shape: Shape) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, [context, head / 2], of ``position * theta ** (-2i / head)``."""
    frequencies = shape.theta ** (-torch.arange(0, shape.head, 2) / shape.head)
    turned = torch.outer(torch.arange(shape.context), frequencies)
    return turned.cos(), turned.sin()


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return heads [..., length, head] with the pairs of their two halves turned."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class Layer(nn.Module):
    """Attention, then a gated feed-forward network, each behind a norm and added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        keys = shape.key_heads * shape.head
        self.shape = shape
        self.attention_norm = nn.RMSNorm(shape.width, shape.epsilon)
        self.q = nn.Linear(shape.width, shape.width, bias=False)
        self.k = nn.Linear(shape.width, keys, bias=False)
        self.v = nn.Linear(shape.width, keys, bias=False)
        self.o = nn.Linear(shape.width, shape.width, bias=False)
        self.inner_norm = nn.RMSNorm(shape.width, shape.epsilon)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Take and return [batch, length, width]."""
        normed = self.attention_norm(x)
        q, k, v = (
            part(normed).unflatten(-1, (-1, self.shape.head)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(attended.transpose(1, 2).flatten(2))
        normed = self.inner_norm(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """Tokens [batch, length] to logits [batch, length, vocabulary]; one matrix reads and writes."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, shape.epsilon)
        cos, sin = angles(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # Two layers' worth of sums per block go into the residual stream.
                deep = (
                    (2 * shape.layers) ** -0.5
                    if name.endswith(("o.weight", "down.weight"))
                    else 1.0
                )
                nn.init.normal_(parameter, std=0.02 * deep * (192 / shape.width) ** 0.5 * 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        length = tokens.shape[1]
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return functional.linear(self.norm(x), self.embedding.weight)
