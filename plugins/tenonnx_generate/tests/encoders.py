"""Folders with an encoder and a decoder, made here, and what their graphs compute, in numpy.

The graphs have the inputs, outputs and operators of those that onnxruntime-genai's builder writes
for Whisper, but take one second of sound, or 30 with ``whole``. With ``text``, the encoder reads
tokens, and the decoder takes its hidden states and its mask.
"""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from folders import BOS, EOS, PAD, tokenizer
from models import FLOAT, INT64, model, node, value

NDArray = np.ndarray[Any, np.dtype[Any]]

LAYERS, HEADS, HEAD, WIDTH = 2, 2, 16, 32
BANDS, FRAMES, PLACES, CONTEXT = 20, 100, 50, 48

# Tokens of Whisper's, after those of `folders.tokenizer`.
SPEECH = [
    *("<|startoftranscript|>", "<|en|>", "<|fr|>", "<|translate|>", "<|transcribe|>"),
    *("<|notimestamps|>", "<|startofprev|>"),
]

FIRST = 261
VOCABULARY = FIRST + len(SPEECH)

SCALE = 1 / np.sqrt(HEAD)
START = [BOS, 97, 98]


def write_encoded(
    folder: Path, *, text: bool = False, whole: bool = False, aligned: bool = False, **changes: Any
) -> Path:
    """Write a folder; ``changes`` are of ``model``, its sections or ``search``, by dotted path.

    With ``aligned``, the decoder returns the scores of its cross attention.
    """
    folder.mkdir(exist_ok=True)
    weights = random_weights()
    seconds = 30 if whole else 1
    weights["places"] = np.tile(weights["places"], (seconds, 1))
    onnx.save(encoder(weights, text, seconds), folder / "encoder.onnx")
    made = decoder(weights, text, seconds)
    if aligned:
        return_cross_scores(made, seconds)
    onnx.save(made, folder / "decoder.onnx")
    config = configuration(text)
    for path, new in changes.items():
        *sections, key = path.split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        if new is None:
            place.pop(key)
        else:
            place[key] = new
    (folder / "genai_config.json").write_text(json.dumps(config))
    if not text:
        (folder / "audio_processor_config.json").write_text(
            json.dumps(processing(chunk_size=seconds))
        )
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    (folder / "tokenizer.json").write_text(json.dumps(speech_tokenizer()))
    return folder


def speech_tokenizer() -> dict[str, Any]:
    made = tokenizer()
    like = made["added_tokens"][0]
    made["added_tokens"] += [
        like | {"id": FIRST + i, "content": text} for i, text in enumerate(SPEECH)
    ]
    return made


def processing(**changes: Any) -> dict[str, Any]:
    attributes = {"chunk_size": 1, "hop_length": 160, "n_fft": 400, "n_mel": BANDS} | changes
    window = np.hanning(401)[:-1].tolist()
    spectrum = {"n_fft": 400, "frame_length": 400, "hop_length": 160, "_comment": window}
    operations = [
        {"name": "audio_decoder", "type": "AudioDecoder"},
        {"name": "STFT", "type": "STFTNorm", "attrs": spectrum},
        {"name": "log_mel_spectrogram", "type": "LogMelSpectrum", "attrs": attributes},
    ]
    return {"feature_extraction": {"sequence": [{"operation": each} for each in operations]}}


def configuration(text: bool = False) -> dict[str, Any]:
    sizes = {
        "head_size": HEAD, "hidden_size": WIDTH, "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS, "num_key_value_heads": HEADS,
    }  # fmt: skip
    cross = {
        "cross_past_key_names": "past_key_cross_%d",
        "cross_past_value_names": "past_value_cross_%d",
    }
    decoder = {
        "filename": "decoder.onnx",
        **sizes,
        "inputs": {
            "past_key_names": "past_key_self_%d",
            "past_value_names": "past_value_self_%d",
            **({} if text else cross),
        },
        "outputs": {
            "present_key_names": "present_key_self_%d",
            "present_value_names": "present_value_self_%d",
        },
    }
    encoder = {
        "filename": "encoder.onnx",
        **sizes,
        "inputs": {} if text else {"audio_features": "audio_features"},
        "outputs": {"encoder_hidden_states": "hidden_states"},
    }
    about = {
        "type": "t5" if text else "whisper",
        "vocab_size": VOCABULARY,
        "context_length": CONTEXT,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "decoder": decoder,
        "encoder": encoder,
        **({"decoder_start_token_id": PAD} if text else {}),
    }
    return {"model": about, "search": {"past_present_share_buffer": False, "max_length": CONTEXT}}


def random_weights() -> dict[str, NDArray]:
    random = np.random.default_rng(5)

    def normal(*shape: int, over: float = 4) -> NDArray:
        return random.standard_normal(shape, np.float32) / np.float32(over)

    weights = {
        "conv1": normal(WIDTH, BANDS, 3), "conv2": normal(WIDTH, WIDTH, 3, over=8),
        "places": normal(PLACES, WIDTH), "table": normal(VOCABULARY, WIDTH, over=1),
        "positions": normal(CONTEXT, WIDTH), "head": normal(WIDTH, VOCABULARY),
    }  # fmt: skip
    for i in range(LAYERS):
        for name in ("q", "k", "v", "o", "cq", "ck", "cv", "co"):
            weights[f"{name}{i}"] = normal(WIDTH, WIDTH)
    return weights


def encoder(weights: dict[str, NDArray], text: bool, seconds: int = 1) -> onnx.ModelProto:
    held = {name: weights[name] for name in ("conv1", "conv2", "places", "table")}
    convolved = {"kernel_shape": [3], "pads": [1, 1]}
    if text:
        nodes = [node("Gather", "table input_ids", "hidden_states")]
        inputs = [value("input_ids", INT64, ["b", "s"]), value("attention_mask", INT64, ["b", "s"])]
    else:
        nodes = [
            node("Conv", "audio_features conv1", "c1", **convolved),
            node("Relu", "c1", "r1"),
            node("Conv", "r1 conv2", "c2", strides=[2], **convolved),
            node("Relu", "c2", "r2"),
            node("Transpose", "r2", "t", perm=[0, 2, 1]),
            node("Add", "t places", "hidden_states"),
        ]
        inputs = [value("audio_features", FLOAT, ["b", BANDS, FRAMES * seconds])]
    places: Any = "s" if text else PLACES * seconds
    outputs = [value("hidden_states", FLOAT, ["b", places, WIDTH])]
    for i in () if text else range(LAYERS):
        held["split"] = np.array([0, -1, HEADS, HEAD])
        for kind, name in (("key", f"ck{i}"), ("value", f"cv{i}")):
            held[name] = weights[name]
            nodes += [
                node("MatMul", f"hidden_states {name}", f"{name}_m"),
                node("Reshape", f"{name}_m split", f"{name}_r"),
                node("Transpose", f"{name}_r", f"present_{kind}_cross_{i}", perm=[0, 2, 1, 3]),
            ]
            outputs.append(
                value(f"present_{kind}_cross_{i}", FLOAT, ["b", HEADS, PLACES * seconds, HEAD])
            )
    return model(nodes, inputs, outputs, held)


def decoder(weights: dict[str, NDArray], text: bool, seconds: int = 1) -> onnx.ModelProto:
    held = {name: weights[name] for name in ("table", "positions", "head")}
    held |= {"zero": np.array([0]), "one": np.array(1), "two": np.array(2)}
    nodes = [
        node("Shape", "input_ids", "sizes"),
        node("Gather", "sizes one", "new"),
        node("Shape", "past_key_self_0", "past_sizes"),
        node("Gather", "past_sizes two", "past"),
        node("Add", "new past", "total"),
        node("Unsqueeze", "total zero", "stop"),
        node("Unsqueeze", "past zero", "start"),
        node("Slice", "positions start stop zero", "here"),
        node("Gather", "table input_ids", "embedded"),
        node("Add", "embedded here", "x0"),
    ]
    attends: dict[str, Any] = {"num_heads": HEADS, "domain": "com.microsoft", "scale": float(SCALE)}
    for i in range(LAYERS):
        for name in ("q", "k", "v", "o", "cq", "co", *(["ck", "cv"] if text else [])):
            held[f"{name}{i}"] = weights[f"{name}{i}"]
        cross = f"past_key_cross_{i} past_value_cross_{i}"
        if text:
            cross = f"ck{i}_m cv{i}_m"
            nodes += [
                node("MatMul", f"encoder_hidden_states {name}{i}", f"{name}{i}_m")
                for name in ("ck", "cv")
            ]
        nodes += [node("MatMul", f"x{i} {name}{i}", f"{name}{i}_m") for name in "qkv"]
        nodes += [
            node(
                "MultiHeadAttention",
                f"q{i}_m k{i}_m v{i}_m _ _ _ past_key_self_{i} past_value_self_{i}",
                f"a{i} present_key_self_{i} present_value_self_{i}",
                unidirectional=1, **attends,
            ),
            node("MatMul", f"a{i} o{i}", f"o{i}_m"),
            node("Add", f"x{i} o{i}_m", f"y{i}"),
            node("MatMul", f"y{i} cq{i}", f"cq{i}_m"),
            node("MultiHeadAttention", f"cq{i}_m {cross}" + (" _ _ bias" if text else ""),
                 f"ca{i}", **attends),
            node("MatMul", f"ca{i} co{i}", f"co{i}_m"),
            node("Add", f"y{i} co{i}_m", f"x{i + 1}"),
        ]  # fmt: skip
    nodes.append(node("MatMul", f"x{LAYERS} head", "logits"))
    inputs = [value("input_ids", INT64, ["b", "n"])]
    if text:
        held |= {"far": np.float32([1e9]), "axes": np.array([1, 2]), "1f": np.float32([1])}
        # One row of a bias stands for all queries: it is repeated for as many as there are.
        nodes[:0] = [
            node("Cast", "encoder_attention_mask", "kept", to=FLOAT),
            node("Sub", "kept 1f", "lost"),
            node("Mul", "lost far", "bias_2d"),
            node("Unsqueeze", "bias_2d axes", "bias_1"),
            node("Cast", "input_ids", "ids_f", to=FLOAT),
            node("Sub", "ids_f ids_f", "nothing"),
            node("Unsqueeze", "nothing axes_q", "nothing_4d"),
            node("Add", "bias_1 nothing_4d", "bias"),
        ]
        held["axes_q"] = np.array([1, 3])
        inputs += [
            value("encoder_attention_mask", INT64, ["b", "s"]),
            value("encoder_hidden_states", FLOAT, ["b", "s", WIDTH]),
        ]
    names = [(kind, i) for i in range(LAYERS) for kind in ("key", "value")]
    inputs += [
        value(f"past_{kind}_self_{i}", FLOAT, ["b", HEADS, "past", HEAD]) for kind, i in names
    ]
    if not text:
        inputs += [
            value(f"past_{kind}_cross_{i}", FLOAT, ["b", HEADS, PLACES * seconds, HEAD])
            for kind, i in names
        ]
    outputs = [value("logits", FLOAT, ["b", "n", VOCABULARY])]
    outputs += [
        value(f"present_{kind}_self_{i}", FLOAT, ["b", HEADS, "all", HEAD]) for kind, i in names
    ]
    return model(nodes, inputs, outputs, held, domains={"com.microsoft": 1})


def return_cross_scores(proto: onnx.ModelProto, seconds: int = 1) -> None:
    """Have a decoder return the scores of its cross attention, before softmax."""
    graph = proto.graph
    for name, array in (
        ("cross_split", np.array([0, -1, HEADS, HEAD])),
        ("cross_scale", np.array(SCALE, np.float32)),
    ):
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for i in range(LAYERS):
        graph.node.extend(
            [
                node("Reshape", f"cq{i}_m cross_split", f"cq{i}_r"),
                node("Transpose", f"cq{i}_r", f"cq{i}_t", perm=[0, 2, 1, 3]),
                node("Transpose", f"past_key_cross_{i}", f"ck{i}_t", perm=[0, 1, 3, 2]),
                node("MatMul", f"cq{i}_t ck{i}_t", f"cqk{i}"),
                node("Mul", f"cqk{i} cross_scale", f"output_cross_qk_{i}"),
            ]
        )
        shape = ["b", HEADS, "n", PLACES * seconds]
        graph.output.append(value(f"output_cross_qk_{i}", FLOAT, shape))


def cross_scores(states: NDArray, tokens: list[int]) -> NDArray:
    """Return the scores [layers, heads, tokens, places] of the cross attention, in numpy."""
    weights = random_weights()
    x = weights["table"][tokens] + weights["positions"][: len(tokens)]
    later = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    found = []
    for i in range(LAYERS):
        w = {name: weights[f"{name}{i}"] for name in ("q", "k", "v", "o", "cq", "ck", "cv", "co")}
        x = x + attended(x @ w["q"], x @ w["k"], x @ w["v"], later) @ w["o"]
        q, k = (each.reshape(len(each), HEADS, HEAD) for each in (x @ w["cq"], states @ w["ck"]))
        found.append(np.einsum("qhd,khd->hqk", q, k) * SCALE)
        x = x + attended(x @ w["cq"], states @ w["ck"], states @ w["cv"], 0) @ w["co"]
    return np.array(found)


def encoded(features: NDArray) -> NDArray:
    """Return the hidden states [places, width] of features [bands, frames], in numpy."""
    weights = random_weights()
    x = features
    for name, stride in (("conv1", 1), ("conv2", 2)):
        padded = np.pad(x, ((0, 0), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1)[:, ::stride]
        x = np.maximum(np.einsum("cfk,ock->of", windows, weights[name]), 0)
    states: NDArray = x.T + weights["places"]
    return states


def followed(states: NDArray, tokens: list[int]) -> NDArray:
    """Return the logits of all tokens, run at once without caches, in numpy."""
    weights = random_weights()
    x = weights["table"][tokens] + weights["positions"][: len(tokens)]
    later = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for i in range(LAYERS):
        w = {name: weights[f"{name}{i}"] for name in ("q", "k", "v", "o", "cq", "ck", "cv", "co")}
        x = x + attended(x @ w["q"], x @ w["k"], x @ w["v"], later) @ w["o"]
        x = x + attended(x @ w["cq"], states @ w["ck"], states @ w["cv"], 0) @ w["co"]
    logits: NDArray = x @ weights["head"]
    return logits


def attended(q: NDArray, k: NDArray, v: NDArray, bias: Any) -> NDArray:
    heads = [array.reshape(len(array), HEADS, HEAD).swapaxes(0, 1) for array in (q, k, v)]
    scores = heads[0] @ heads[1].swapaxes(1, 2) * SCALE + bias
    chances = np.exp(scores - scores.max(-1, keepdims=True))
    chances /= chances.sum(-1, keepdims=True)
    joined: NDArray = (chances @ heads[2]).swapaxes(0, 1).reshape(len(q), -1)
    return joined


def greedy(states: NDArray, tokens: list[int], length: int) -> list[int]:
    """Return the likeliest tokens, one after the other."""
    made = list(tokens)
    while len(made) < length:
        token = int(followed(states, made)[-1].argmax())
        if token == EOS:
            break
        made.append(token)
    return made


def sweep(seconds: float, rate: int = 16_000, low: float = 200, high: float = 3000) -> NDArray:
    """Return a tone that rises, with a little noise."""
    times = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * (low + (high - low) * times / max(seconds, 1e-9) / 2) * times
    noise = np.random.default_rng(1).standard_normal(len(times)) / 100
    tone: NDArray = np.sin(phase) * 0.5 + noise
    return tone


def write_wave(
    path: Path, samples: NDArray, rate: int = 16_000, *, width: int = 2, channels: int = 1
) -> Path:
    """Write samples as a WAV file of whole numbers; each channel has all of them."""
    whole = np.round(samples * ((1 << (8 * width - 1)) - 1)).astype(np.int64)
    if width == 1:
        whole += 128
    frames = np.repeat(whole.astype("<i8")[:, None], channels, 1)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(frames.view(np.uint8).reshape(*frames.shape, 8)[..., :width].tobytes())
    return path
