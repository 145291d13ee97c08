"""Language models end to end: the folders of onnxruntime-genai, by its names.

A folder has ``genai_config.json``, a decoder that is one graph, and ``tokenizer.json``::

    import tenonnx_generate as og

    model = og.Model("folder")
    tokenizer = og.Tokenizer(model)
    generator = og.Generator(model, og.GeneratorParams(model))
    generator.append_tokens(tokenizer.encode("The with statement"))
    while not generator.is_done():
        generator.generate_next_token()
    print(tokenizer.decode(generator.get_sequence(0)))

What stands in brackets is a module::

    folder ─▶ [config] genai_config.json with what callers changed ─▶ [description] checked
                │                                                        │
                ▼                                                        ▼
      [tokenizer] text ⇄ ids, [streaming] a token at a time    [model] one InferenceSession
                │  [chat] messages as a prompt                           │
                ▼                                                        ▼
      [generator] sequences ──▶ [decoder] runs what is new ──▶ [cache] keys and values
                ▲                        │ logits of the last token
                └──── [search] ◀─────────┘ of [options]: the likeliest, or one that is drawn,
                                           of those that [guidance] allows
    [picture_files] [image_transforms] [image_processor] pixels ──▶ [vision] their features
                         ──▶ [image_source] in the places of a sequence's tokens ──▶ [decoder]
    [beam_generator] a generator with a row for each of the [beams]
    [drafted_generator] one whose tokens [drafting] proposes, by options of [speculation]
    [engine] many requests, a row each ──▶ [decoder]
       │  [request] turns of one, of [turns] options; what they tell are events
       └─ [slots] which rows of the caches have which tokens

[hooks] has the subcommand (``register_commands``): a program that imports this package does without
plug-ins.

**Caches.** A sequence has one buffer for each cache, as long as it may become. It is bound as
input and as output, so that a step writes the new entries and moves nothing; its memory comes with
the pages that are written. Rows of a batch lie in one buffer, and each has its own length: there is
no padding.

**What is run.** A generator knows how many tokens of a sequence its caches have. Logits are those
of the last token, and running means: all tokens that the caches have not yet. Going back to an
earlier length is a smaller number, a second prompt some more tokens.

**Nothing of a folder is believed.** Its files have greatest sizes, paths stay inside it, numbers
are in their ranges, and names are those of the graph. Chat templates run in jinja2's sandbox.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx_generate.adapters import Adapters
    from tenonnx_generate.audio import Audios
    from tenonnx_generate.config import Config
    from tenonnx_generate.engine import Engine
    from tenonnx_generate.engine_values import EngineCapabilities, EngineEventBuffer
    from tenonnx_generate.generator import Generator
    from tenonnx_generate.model import Model
    from tenonnx_generate.options import GeneratorParams
    from tenonnx_generate.picture_files import Images
    from tenonnx_generate.processor import MultiModalProcessor, NamedTensors
    from tenonnx_generate.request import Request, TurnStream
    from tenonnx_generate.stops import StopStrings
    from tenonnx_generate.streaming import TokenizerStream
    from tenonnx_generate.tensor import Tensor
    from tenonnx_generate.tokenizer import Tokenizer
    from tenonnx_generate.turns import (
        EngineErrorCode,
        EngineEvent,
        EngineEventFlags,
        FinishReason,
        RequestOptions,
        TurnOptions,
        TurnUsage,
    )

__all__ = [
    "Adapters",
    "Audios",
    "Config",
    "Engine",
    "EngineCapabilities",
    "EngineErrorCode",
    "EngineEvent",
    "EngineEventBuffer",
    "EngineEventFlags",
    "FinishReason",
    "Generator",
    "GeneratorParams",
    "Images",
    "Model",
    "MultiModalProcessor",
    "NamedTensors",
    "Request",
    "RequestOptions",
    "StopStrings",
    "Tensor",
    "Tokenizer",
    "TokenizerStream",
    "TurnOptions",
    "TurnStream",
    "TurnUsage",
]

_HOMES = {
    "Adapters": "adapters",
    "Audios": "audio",
    "Config": "config",
    "Engine": "engine",
    "EngineCapabilities": "engine_values",
    "EngineErrorCode": "turns",
    "EngineEvent": "turns",
    "EngineEventBuffer": "engine_values",
    "EngineEventFlags": "turns",
    "FinishReason": "turns",
    "Generator": "generator",
    "GeneratorParams": "options",
    "Images": "picture_files",
    "Model": "model",
    "MultiModalProcessor": "processor",
    "NamedTensors": "processor",
    "Request": "request",
    "RequestOptions": "turns",
    "StopStrings": "stops",
    "Tensor": "tensor",
    "Tokenizer": "tokenizer",
    "TokenizerStream": "streaming",
    "TurnOptions": "turns",
    "TurnStream": "request",
    "TurnUsage": "turns",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tenonnx_generate.{_HOMES[name]}"), name)
