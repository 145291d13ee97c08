"""Writes a model of transformers' as torch exports it: ``python export.py NAME FILE [--small]``.

The file is an ONNX model, made from a configuration with random weights; an ``.npz`` of the same
name has its inputs. It needs torch, transformers and onnxscript, and runs in a process of its own.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as tr
from torch import nn

EAGER = {"attn_implementation": "eager"}
Arrays = dict[str, torch.Tensor]
Made = tuple[nn.Module, Arrays]


class Called(nn.Module):
    """Calls a model by its inputs' names, with what else is given, and returns some outputs."""

    def __init__(self, model: nn.Module, names: list[str], *told: str, **given: Any) -> None:
        super().__init__()
        self.model, self.names, self.told, self.given = model, names, told, given

    def forward(self, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs."""
        given = dict(zip(self.names, arrays, strict=True)) | self.given
        result = self.model(**given, return_dict=True)
        return tuple(result[name] for name in self.told)


class Step(nn.Module):
    """A decoder's step: a token and the cache in, logits and the longer cache out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the logits, and keys and values of every layer."""
        cache = tr.DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        out = self.model(input_ids=token, past_key_values=cache, use_cache=True)
        layers = out.past_key_values.layers
        return (out.logits, *(t for each in layers for t in (each.keys, each.values)))


def _seeing(model: nn.Module, size: int, *told: str) -> Made:
    image = torch.randn((1, 3, size, size), generator=torch.Generator().manual_seed(1))
    return Called(model, ["pixel_values"], *told), {"pixel_values": image}


def mobilevit(*, small: bool) -> Made:
    """MobileViT-S."""
    shape: dict[str, Any] = {"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8] * 7}
    model = tr.MobileViTForImageClassification(tr.MobileViTConfig(**(shape if small else {})))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):  # by default each of many makes numbers smaller
            nn.init.normal_(module.weight, std=1.9 / module.weight[0].numel() ** 0.5)
    return _seeing(model, 64 if small else 256, "logits")


def detr(*, small: bool) -> Made:
    """DETR over ResNet-50, on a smaller image than its usual one."""
    shape: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8] * 4, "depths": [1] * 4}
    backbone = tr.ResNetConfig(**(shape if small else {}), out_features=["stage4"])
    less: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32}
    config = tr.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=backbone, **(less if small else {}), **EAGER,
    )  # fmt: skip
    model = tr.DetrForObjectDetection(config)
    return _seeing(model, 64 if small else 320, "logits", "pred_boxes")


def segformer(*, small: bool) -> Made:
    """SegFormer-B0."""
    shape: dict[str, Any] = {"hidden_sizes": [8, 16, 20, 32], "decoder_hidden_size": 16}
    config = tr.SegformerConfig(**(shape if small else {}))
    return _seeing(tr.SegformerForSemanticSegmentation(config), 64 if small else 256, "logits")


def vit(*, small: bool) -> Made:
    """ViT-S with patches of 16 x 16."""
    width, layers, heads = (32, 1, 2) if small else (384, 12, 6)
    config = tr.ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width, image_size=32 if small else 224, **EAGER,
    )  # fmt: skip
    model = tr.ViTForImageClassification(config)
    return _seeing(model, 32 if small else 224, "logits")


def t5(*, small: bool) -> Made:
    """T5-small: 64 tokens read, 8 written."""
    less: dict[str, Any] = {"d_model": 32, "d_kv": 8, "num_heads": 4, "num_layers": 1, "d_ff": 64}
    config = tr.T5Config(**(less if small else {}), decoder_start_token_id=0, **EAGER)
    random = torch.Generator().manual_seed(1)
    tokens = {"input_ids": 64, "decoder_input_ids": 8}
    feeds = {k: torch.randint(2, 1000, (1, n), generator=random) for k, n in tokens.items()}
    model = tr.T5ForConditionalGeneration(config)
    return Called(model, list(feeds), "logits", use_cache=False), feeds


def gptneox(*, small: bool, past: int = 96) -> Made:
    """Pythia-70M, whose heads turn a fourth of their numbers: a token after others."""
    width, layers, heads = (32, 1, 2) if small else (512, 6, 8)
    config = tr.GPTNeoXConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width, max_position_embeddings=512, **EAGER,
    )  # fmt: skip
    random = torch.Generator().manual_seed(1)
    shape = (1, heads, past, width // heads)
    feeds = {
        f"past_{part}{layer}": torch.randn(shape, generator=random)
        for layer in range(layers)
        for part in ("key", "value")
    }
    return Step(tr.GPTNeoXForCausalLM(config)), {"token": torch.tensor([[7]]), **feeds}


MODELS: dict[str, Callable[..., Made]] = {
    "mobilevit": mobilevit,
    "detr": detr,
    "segformer-b0": segformer,
    "vit": vit,
    "t5": t5,
    "gptneox": gptneox,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    module, feeds = MODELS[given.name](small=given.small)
    module.eval()
    torch.onnx.export(
        module, tuple(feeds.values()), given.file, input_names=list(feeds), dynamo=True,
        external_data=False, verbose=False,
    )  # fmt: skip
    np.savez(given.file.with_suffix(".npz"), **{k: v.numpy() for k, v in feeds.items()})


if __name__ == "__main__":
    main()
