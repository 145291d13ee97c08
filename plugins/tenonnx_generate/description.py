"""What a configuration says of a model, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenonnx.records import record
from tenonnx_generate.config import NAME, PROVIDERS, Config
from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.files import inside

DECODERS = {
    *("chatglm", "decoder", "ernie4_5", "gemma", "gemma2", "gemma3_text", "gemma3n_text", "glm"),
    *("gpt2", "gptoss", "granite", "hunyuan_v1_dense", "internlm2", "llama", "mistral", "nemotron"),
    *("olmo", "olmo2", "olmo3", "phi", "phi3", "phi3small", "phimoe", "qwen2", "qwen3", "smollm"),
    *("smollm3", "stablelm"),
}
"""Model types that are one graph from tokens to logits."""

OTHERS = {
    "decoder-pipeline": "several graphs in a row",
    "fara": "images beside text",
    "gemma3": "images beside text",
    "marian-ssru": "an encoder and a decoder",
    "phi3v": "images beside text",
    "phi4mm": "images and sound beside text",
    "qwen2_5_vl": "images beside text",
    "whisper": "an encoder and a decoder",
}
"""Model types that are not, and what they are."""

PARTS = ("encoder", "vision", "speech", "embedding", "encoder_decoder_init")
"""Sections of models that have more graphs than a decoder."""

MOST_TOKENS = 1 << 27
MOST_LAYERS = 4096
MOST_HEADS = 1 << 16

INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "attention_mask",
    "position_ids": "position_ids",
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
}
OUTPUTS = {
    "logits": "logits",
    "present_key_names": "present.%d.key",
    "present_value_names": "present.%d.value",
}


@record
class Description:
    """A model as its folder describes it.

    Attributes:
        folder: Where it lies.
        type: Which architecture it is.
        path: The graph's file.
        vocabulary: How many tokens there are.
        context: How many a sequence may have.
        bos: The token that begins a text, if there is one.
        eos: Tokens that end one.
        pad: What stands where there is no token.
        layers: How many there are at most.
        key_heads: Heads of a cache.
        head_size: Width of each.
        window: How many tokens a layer with a window sees; 1 without any.
        inputs: Names of the graph's inputs by what they are; ``%d`` is the layer.
        outputs: Names of its outputs by what they are; ``%d`` is the layer.
        providers: What ``InferenceSession`` takes.
        session: ``session_options`` as they stand.
        search: ``search`` as it stands.
    """

    folder: Path
    type: str
    path: Path
    vocabulary: int
    context: int
    bos: int | None
    eos: tuple[int, ...]
    pad: int
    layers: int
    key_heads: int
    head_size: int
    window: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    providers: list[tuple[str, dict[str, str]]]
    session: dict[str, Any]
    search: dict[str, Any]


def describe(config: Config) -> Description:
    """Returns what a configuration says.

    Raises:
        Refused: Something of it cannot be.
        Missing: The graph's file is not there.
        Unsupported: The model is not one graph, or of a type that nobody knows.
    """
    model = _section(config.document, "model")
    decoder = _section(model, "decoder")
    kind = _kind(model, decoder)
    vocabulary = _number(model, "vocab_size", 1, MOST_TOKENS)
    eos = _tokens(model, vocabulary)
    session = _section(decoder, "session_options", {})
    pad = _number(model, "pad_token_id", 0, vocabulary - 1, eos[0] if eos else 0)
    return Description(
        folder=config.folder,
        type=kind,
        path=inside(config.folder, _text(decoder, "filename", "model.onnx")),
        vocabulary=vocabulary,
        context=_number(model, "context_length", 1, MOST_TOKENS),
        bos=_optional(model, "bos_token_id", vocabulary),
        eos=eos,
        pad=pad,
        layers=_number(decoder, "num_hidden_layers", 1, MOST_LAYERS),
        key_heads=_number(decoder, "num_key_value_heads", 1, MOST_HEADS),
        head_size=_number(decoder, "head_size", 1, MOST_HEADS),
        window=_number(_section(decoder, "sliding_window", {}), "window_size", 1, MOST_TOKENS, 1),
        inputs=_names(_section(decoder, "inputs", {}), INPUTS),
        outputs=_names(_section(decoder, "outputs", {}), OUTPUTS),
        providers=_providers(session),
        session=session,
        search=_section(config.document, "search", {}),
    )


def _kind(model: Mapping[str, Any], decoder: Mapping[str, Any]) -> str:
    kind = _text(model, "type")
    if kind in OTHERS:
        raise Unsupported(
            f"{NAME} is of the type {kind!r}, which has {OTHERS[kind]}",
            hint="decoders that are one graph from tokens to logits run here",
        )
    if kind not in DECODERS:
        raise Unsupported(
            f"{NAME} is of the type {kind!r}, which nobody knows",
            hint=f"types that run here: {', '.join(sorted(DECODERS))}",
        )
    for part in PARTS:
        if part in model:
            raise Unsupported(f"{NAME} has a section {part!r}: the model is not one graph")
    if decoder.get("pipeline"):
        raise Unsupported(f"{NAME} has a pipeline: the model is not one graph")
    if _section(decoder, "sliding_window", {}).get("slide_key_value_cache"):
        raise Unsupported(
            f"{NAME} asks for caches that slide", hint="windows that the graph has itself run here"
        )
    return kind


def _section(place: Mapping[str, Any], key: str, default: Any = None) -> dict[str, Any]:
    found = place.get(key, default)
    if not isinstance(found, dict):
        raise Refused(f"{key} in {NAME} is {found!r:.60}; expected an object")
    return found


def _text(place: Mapping[str, Any], key: str, default: str | None = None) -> str:
    found = place.get(key, default)
    if not isinstance(found, str) or not found:
        raise Refused(f"{key} in {NAME} is {found!r:.60}; expected a text")
    return found


def _number(
    place: Mapping[str, Any], key: str, low: int, high: int, default: int | None = None
) -> int:
    found = place.get(key, default)
    if found is None and default is not None:
        found = default
    if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
        raise Refused(f"{key} in {NAME} is {found!r:.60}; expected a number from {low} to {high}")
    return found


def _optional(place: Mapping[str, Any], key: str, vocabulary: int) -> int | None:
    return None if place.get(key) is None else _number(place, key, 0, vocabulary - 1)


def _tokens(model: Mapping[str, Any], vocabulary: int) -> tuple[int, ...]:
    found = model.get("eos_token_id")
    listed = [] if found is None else found if isinstance(found, list) else [found]
    named = [{"eos_token_id": token} for token in listed]
    return tuple(_number(each, "eos_token_id", 0, vocabulary - 1) for each in named)


def _names(given: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, str]:
    names = {key: _text(given, key, default) for key, default in defaults.items()}
    for key, name in names.items():
        if key.endswith("_names") and name.count("%") + name.count("%d") != 2:
            raise Refused(f"{key} in {NAME} is {name!r:.60}; expected one %d, for the layer")
    return names


def _providers(session: Mapping[str, Any]) -> list[tuple[str, dict[str, str]]]:
    listed = session.get("provider_options", [])
    if not isinstance(listed, list):
        raise Refused(f"provider_options in {NAME} is {listed!r:.60}; expected a list")
    found: list[tuple[str, dict[str, str]]] = []
    for entry in listed:
        if not isinstance(entry, dict):
            raise Refused(f"provider_options in {NAME} has {entry!r:.60}; expected an object")
        for name, options in entry.items():
            if not isinstance(options, dict):
                raise Refused(f"options of {name!r:.60} in {NAME} are no object")
            full = PROVIDERS.get(str(name).lower(), str(name))
            found.append((full, {key: str(value) for key, value in options.items()}))
    if all(name != PROVIDERS["cpu"] for name, _ in found):
        found.append((PROVIDERS["cpu"], {}))
    return found
