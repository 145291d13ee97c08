"""The benchmark's networks as torch modules, of the same shapes; weights are drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class EncoderLayer(nn.Module):
    """A layer of BERT: attention with a mask, then a GELU, each added and normalized."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Any, mask: Any) -> Any:
        """Return [batch, length, width]."""
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for f in (self.q, self.k, self.v))  # fmt: skip
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norms[0](x + self.o(mixed.transpose(1, 2).flatten(2)))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    """BERT without its pooler."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))

    def forward(self, ids: Any, mask: Any) -> Any:
        """Return the hidden states of [batch, length] ids."""
        x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        bias = (1 - mask[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.layers:
            x = layer(x, bias)
        return x


class VisionLayer(nn.Module):
    """A layer of ViT: what is added was normalized before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Any) -> Any:
        """Return [batch, length, width]."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.norms[0](x)).chunk(3, -1))  # fmt: skip
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Vision(nn.Module):
    """ViT, with a classifier of its first token."""

    def __init__(self, layers: int, width: int, heads: int, image: int, patch: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(VisionLayer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image: Any) -> Any:
        """Return [batch, 1000]."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), 1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class Bottleneck(nn.Module):
    """Three convolutions and the way around them."""

    def __init__(self, channels: int, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, inner, 1), nn.ReLU()),
            *(nn.Conv2d(inner, inner, 3, stride, 1), nn.ReLU()),
            nn.Conv2d(inner, outer, 1),
        )
        around = stride != 1 or channels != outer
        self.around = nn.Conv2d(channels, outer, 1, stride) if around else nn.Identity()

    def forward(self, x: Any) -> Any:
        """Return [batch, outer, height / stride, width / stride]."""
        return F.relu(self.body(x) + self.around(x))


class ResNet(nn.Module):
    """ResNet-50 as it is exported: normalizations folded into the convolutions."""

    def __init__(self, blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                layers.append(Bottleneck(channels, width << stage, 4 * width << stage, stride))
                channels = 4 * width << stage
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(channels, 1000)

    def forward(self, image: Any) -> Any:
        """Return [batch, 1000]."""
        return self.head(self.body(image))


class DecoderLayer(nn.Module):
    """A layer of Phi-3: attention after a cache, and a gated product."""

    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(width, 3 * width, False), nn.Linear(width, width, False)
        self.up, self.down = nn.Linear(width, 2 * inner, False), nn.Linear(inner, width, False)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))

    def forward(self, x: Any, cos: Any, sin: Any, keys: Any, values: Any) -> Any:
        """Return the hidden states, all keys and all values."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.norms[0](x)).chunk(3, -1))  # fmt: skip
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        hidden = torch.ones(x.shape[1], keys.shape[2], dtype=torch.bool, device=x.device)
        seen = hidden.tril(keys.shape[2] - x.shape[1]) if x.shape[1] > 1 else None
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        gate, up = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up), keys, values


class Decoder(nn.Module):
    """Some layers over hidden states of a few tokens, after others in a cache."""

    def __init__(self, layers: int, width: int, inner: int, heads: int, length: int = 4096) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(width, inner, heads) for _ in range(layers))
        size = width // heads
        rates = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(length).float(), rates)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Any, position: Any, *cache: Any) -> Any:
        """Return the hidden states and the cache, keys and values of each layer in turn."""
        cos, sin = self.cos[position], self.sin[position]
        grown = []
        for number, layer in enumerate(self.layers):
            x, keys, values = layer(x, cos, sin, *cache[2 * number : 2 * number + 2])
            grown += [keys, values]
        return x, *grown


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """Return heads whose halves were turned by their position's angles."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
