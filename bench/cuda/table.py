"""The rows: a network, its twin in torch, and the twin's element type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx

from bench.builder import Feeds
from bench.convnets import resnet50
from bench.cuda.halved import halved
from bench.llm import HEADS, INNER, WIDTH, phi3
from bench.transformers import encoder, vision


@dataclass(frozen=True)
class Row:
    """One network.

    Attributes:
        about: What it is, in a few words.
        build: Returns the model and its inputs; small ones if asked to.
        twin: Returns the torch module.
        half: Whether torch computes in float16.
        streams: Whether a run reads all weights once and does little else: no run takes less than
            the device's memory does for them.
        grows: Whether caches that a run returns are what the next one is given.
    """

    about: str
    build: Callable[[bool], tuple[onnx.ModelProto, Feeds]]
    twin: Callable[[bool], Any]
    half: bool = False
    streams: bool = False
    grows: bool = False


def _encoder(small: bool) -> dict[str, int]:
    if small:
        return {"layers": 1, "width": 64, "heads": 2, "vocabulary": 100}
    return {"layers": 12, "width": 768, "heads": 12, "vocabulary": 30522}


def _vision(small: bool) -> dict[str, int]:
    if small:
        return {"layers": 1, "width": 64, "heads": 2, "image": 32, "patch": 8}
    return {"layers": 12, "width": 768, "heads": 12, "image": 224, "patch": 16}


def _decoder(small: bool) -> dict[str, int]:
    if small:
        return {"layers": 1, "width": 128, "inner": 256, "heads": 2}
    return {"layers": 4, "width": WIDTH, "inner": INNER, "heads": HEADS}


def _bert(small: bool) -> Any:
    from bench.cuda.twins import Encoder

    return Encoder(**_encoder(small))


def _vit(small: bool) -> Any:
    from bench.cuda.twins import Vision

    return Vision(**_vision(small))


def _resnet(small: bool) -> Any:
    from bench.cuda.twins import ResNet

    return ResNet(blocks=(1, 1, 1, 1), width=8) if small else ResNet()


def _phi3(small: bool) -> Any:
    from bench.cuda.twins import Decoder

    return Decoder(**_decoder(small))


def _small_resnet(small: bool) -> tuple[onnx.ModelProto, Feeds]:
    return resnet50(image=64, blocks=(1, 1, 1, 1), width=8) if small else resnet50()


# In the order of what one would know first, for a device may be lent for minutes.
ROWS: dict[str, Row] = {
    "decode-nbits-fp16": Row(
        "4 layers of Phi-3-mini, int4 as MatMulNBits, activations in float16, 1 token after 128",
        lambda small: halved(*phi3(form="nbits", **_decoder(small))),
        _phi3,
        half=True,
        streams=True,
    ),
    "generate-nbits-fp16": Row(
        "4 layers of Phi-3-mini, int4 as MatMulNBits, token after token from 128 on",
        lambda small: halved(*phi3(form="nbits", **_decoder(small))),
        _phi3,
        half=True,
        streams=True,
        grows=True,
    ),
    "bert-base": Row("BERT-base, 128 tokens", lambda small: encoder(**_encoder(small)), _bert),
    "resnet50": Row("ResNet-50, one image", _small_resnet, _resnet),
    "vit-fp16": Row(
        "ViT-base in float16, one image",
        lambda small: halved(*vision(**_vision(small))),
        _vit,
        half=True,
    ),
    "resnet50-fp16": Row(
        "ResNet-50 in float16, one image",
        lambda small: halved(*_small_resnet(small)),
        _resnet,
        half=True,
    ),
    "bert-base-8-fp16": Row(
        "BERT-base in float16, 8 times 128 tokens",
        lambda small: halved(*encoder(batch=8, **_encoder(small))),
        _bert,
        half=True,
    ),
    "decode-fp16": Row(
        "4 layers of Phi-3-mini in float16, 1 token after 128",
        lambda small: halved(*phi3(form="float", **_decoder(small))),
        _phi3,
        half=True,
        streams=True,
    ),
    "generate-fp16": Row(
        "4 layers of Phi-3-mini in float16, token after token from 128 on",
        lambda small: halved(*phi3(form="float", **_decoder(small))),
        _phi3,
        half=True,
        streams=True,
        grows=True,
    ),
    "prefill-fp16": Row(
        "4 layers of Phi-3-mini in float16, 512 tokens after 1",
        lambda small: halved(
            *phi3(form="float", tokens=8 if small else 512, past=1, **_decoder(small))
        ),
        _phi3,
        half=True,
    ),
    "decode-qdq": Row(
        "4 layers of Phi-3-mini, int4 behind DequantizeLinear, 1 token after 128",
        lambda small: phi3(form="qdq", **_decoder(small)),
        _phi3,
        half=True,
        streams=True,
    ),
    "decode-nbits": Row(
        "4 layers of Phi-3-mini, int4 as MatMulNBits, 1 token after 128",
        lambda small: phi3(form="nbits", **_decoder(small)),
        _phi3,
        half=True,
        streams=True,
    ),
    "vit": Row("ViT-base, one image", lambda small: vision(**_vision(small)), _vit),
    "bert-base-8": Row(
        "BERT-base, 8 times 128 tokens", lambda small: encoder(batch=8, **_encoder(small)), _bert
    ),
    "prefill-nbits-fp16": Row(
        "4 layers of Phi-3-mini, int4 as MatMulNBits, activations in float16, 512 tokens after 1",
        lambda small: halved(
            *phi3(form="nbits", tokens=8 if small else 512, past=1, **_decoder(small))
        ),
        _phi3,
        half=True,
    ),
    "prefill-nbits": Row(
        "4 layers of Phi-3-mini, int4 as MatMulNBits, 512 tokens after 1",
        lambda small: phi3(form="nbits", tokens=8 if small else 512, past=1, **_decoder(small)),
        _phi3,
    ),
}
