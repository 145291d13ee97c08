"""The description of a model in a configuration, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenonnx_generate.config import CONFIG_FILE, Config
from tenonnx_generate.errors import Unsupported
from tenonnx_generate.fields import names_of, number_of, providers_of, section_of, text_of
from tenonnx_generate.files import inside
from tenonnx_generate.suppression import NO_SUPPRESSION, Suppressed, suppressed_in

# Model types that are one graph from tokens to logits.
DECODERS = {
    *("chatglm", "decoder", "ernie4_5", "gemma", "gemma2", "gemma3_text", "gemma3_vl_text"),
    *("gemma3n_text", "gemma4_text", "glm", "gpt2", "gptoss", "granite", "hunyuandensev1"),
    "granitemoehybrid",
    *(
        "internlm2",
        "lfm2",
        "lfm2_moe",
        "llama",
        "mistral",
        "mistral3_text",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
    ),
    *("phi", "phi3", "phi3small", "phimoe", "qwen2", "qwen2_5_vl_text", "qwen3", "qwen3_5_text"),
    *("qwen3_5_moe_text", "qwen3_vl_text", "smollm", "smollm3", "stablelm"),
}

# Model types with an encoder of texts, which onnxruntime-genai has no names for.
TEXT_ENCODERS = {"bart", "encoder-decoder", "m2m_100", "marian", "mbart", "pegasus", "t5"}

# Model types with an encoder that runs once, before the decoder.
ENCODERS = {"whisper", *TEXT_ENCODERS}

# Model types of images: graphs for images and for the embedding of tokens run before the decoder.
# Of some, images have grids of patches, which are positions of their tokens.
GRIDS = {"fara", "qwen2_5_vl", "qwen3_vl"}
IMAGES = {"gemma3", *GRIDS}

# Model types that are not, and what they are.
OTHERS = {
    "decoder-pipeline": "several graphs in a row",
    "marian-ssru": "a recurrent decoder",
    "phi4mm": "images and sound beside text",
    **dict.fromkeys(
        ("gemma4", "lfm2_vl", "mistral3", "phi3v", "qwen3_5", "qwen3_5_moe"),
        "images in another form than gemma3 and qwen2_5_vl",
    ),
    **dict.fromkeys(
        ("lfm2_audio", "moonshine", "nemotron_speech", "parakeet_tdt"), "sound beside text"
    ),
    "nemotron_h": "recurrent or convolution caches",
}

# Sections of models that have more graphs than a decoder.
PARTS = ("encoder", "vision", "speech", "embedding", "encoder_decoder_init")

MOST_TOKENS = 1 << 27
MOST_LAYERS = 4096
MOST_HEADS = 1 << 16

INPUTS = {
    "input_ids": "input_ids",
    "inputs_embeds": "inputs_embeds",
    "attention_mask": "attention_mask",
    "position_ids": "position_ids",
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
    "past_conv_names": "past_key_values.%d.conv_state",
    "past_recurrent_names": "past_key_values.%d.recurrent_state",
}
OUTPUTS = {
    "logits": "logits",
    "present_key_names": "present.%d.key",
    "present_value_names": "present.%d.value",
    "present_conv_names": "present.%d.conv_state",
    "present_recurrent_names": "present.%d.recurrent_state",
    "output_cross_qk_names": "output_cross_qk_%d",
}


@dataclass(frozen=True)
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
        speech: The file that says how features of sounds are made; empty where none is named.
        suppressed: Tokens that may not come, of a model with an encoder.
    """

    folder: str
    type: str
    path: str
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
    speech: str = ""
    suppressed: Suppressed = NO_SUPPRESSION


def describe(config: Config) -> Description:
    """Return what a configuration says.

    Raises:
        Refused: Something of it cannot be.
        Missing: The graph's file is not there.
        Unsupported: The model is not one graph, or of a type that nobody knows.
    """
    model = section_of(config.document, "model")
    decoder = section_of(model, "decoder")
    kind = _kind(model, decoder)
    vocabulary = number_of(model, "vocab_size", 1, MOST_TOKENS)
    eos = _tokens(model, vocabulary)
    session = section_of(decoder, "session_options", {})
    pad = number_of(model, "pad_token_id", 0, vocabulary - 1, eos[0] if eos else 0)
    return Description(
        folder=config.folder,
        type=kind,
        path=inside(config.folder, text_of(decoder, "filename", "model.onnx")),
        vocabulary=vocabulary,
        context=number_of(model, "context_length", 1, MOST_TOKENS),
        bos=_optional(model, "bos_token_id", vocabulary),
        eos=eos,
        pad=pad,
        layers=number_of(decoder, "num_hidden_layers", 1, MOST_LAYERS),
        key_heads=number_of(decoder, "num_key_value_heads", 1, MOST_HEADS),
        head_size=number_of(decoder, "head_size", 1, MOST_HEADS),
        window=number_of(
            section_of(decoder, "sliding_window", {}), "window_size", 1, MOST_TOKENS, 1
        ),
        inputs=names_of(section_of(decoder, "inputs", {}), INPUTS),
        outputs=names_of(section_of(decoder, "outputs", {}), OUTPUTS),
        providers=providers_of(session),
        session=session,
        search=section_of(config.document, "search", {}),
        speech=_speech(section_of(model, "speech", {})),
        suppressed=suppressed_in(config.folder, vocabulary) if kind in ENCODERS else NO_SUPPRESSION,
    )


def _kind(model: Mapping[str, Any], decoder: Mapping[str, Any]) -> str:
    kind = text_of(model, "type")
    if kind in OTHERS:
        raise Unsupported(
            f"{CONFIG_FILE} is of the type {kind!r}, which has {OTHERS[kind]}",
            hint="decoders that are one graph from tokens to logits run here, with or without an "
            "encoder, and models of images of some types",
        )
    if kind not in DECODERS | ENCODERS | IMAGES:
        raise Unsupported(
            f"{CONFIG_FILE} is of the type {kind!r}, which nobody knows",
            hint=f"types that run here: {', '.join(sorted(DECODERS | ENCODERS | IMAGES))}",
        )
    own = ("encoder", "speech") if kind in ENCODERS else ("embedding", "vision")
    for part in PARTS:
        if part in model and not (part in own and kind not in DECODERS):
            raise Unsupported(f"{CONFIG_FILE} has a section {part!r}: the model is not one graph")
    if decoder.get("pipeline"):
        raise Unsupported(f"{CONFIG_FILE} has a pipeline: the model is not one graph")
    if section_of(decoder, "sliding_window", {}).get("slide_key_value_cache"):
        raise Unsupported(
            f"{CONFIG_FILE} asks for caches that slide",
            hint="windows that the graph has itself run here",
        )
    return kind


def _speech(section: Mapping[str, Any]) -> str:
    return text_of(section, "config_filename") if section.get("config_filename") else ""


def _optional(place: Mapping[str, Any], key: str, vocabulary: int) -> int | None:
    return None if place.get(key) is None else number_of(place, key, 0, vocabulary - 1)


def _tokens(model: Mapping[str, Any], vocabulary: int) -> tuple[int, ...]:
    found = model.get("eos_token_id")
    listed = [] if found is None else found if isinstance(found, list) else [found]
    named = [{"eos_token_id": token} for token in listed]
    return tuple(number_of(each, "eos_token_id", 0, vocabulary - 1) for each in named)
