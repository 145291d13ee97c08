"""A folder of onnxruntime-genai's that is made here: a tiny decoder and a tokenizer of bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tenonnx
from models import FLOAT, INT64, model, node, value

LAYERS, HEADS, KEY_HEADS, HEAD, WIDTH = 2, 4, 2, 16, 64
VOCABULARY, CONTEXT = 264, 128
BOS, EOS, PAD = 256, 257, 258

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_folder(folder: Path, *, positions: bool = False, lora: str = "", **changes: Any) -> Path:
    """Write a folder; ``changes`` are of ``model`` and ``search`` in its configuration."""
    folder.mkdir(exist_ok=True)
    onnx.save(decoder(positions, lora), folder / "model.onnx")
    config = configuration()
    for section in ("model", "search"):
        config[section].update(changes.get(section, {}))
    (folder / "genai_config.json").write_text(json.dumps(config))
    tokens = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return folder


def configuration() -> dict[str, Any]:
    names = {"past_key_names": "past_key_values.%d.key", "input_ids": "input_ids"}
    decoder = {
        "filename": "model.onnx",
        "head_size": HEAD,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KEY_HEADS,
        "inputs": names,
        "session_options": {"log_id": "x", "provider_options": []},
    }
    about = {
        "type": "llama",
        "vocab_size": VOCABULARY,
        "context_length": CONTEXT,
        "bos_token_id": BOS,
        "eos_token_id": [EOS],
        "pad_token_id": PAD,
        "decoder": decoder,
    }
    return {"model": about, "search": {"past_present_share_buffer": True, "max_length": CONTEXT}}


def decoder(positions: bool = False, lora: str = "", hidden: bool = False) -> onnx.ModelProto:
    """Return a decoder as onnxruntime-genai's builder writes them, with random weights.

    With ``lora``, adapters change what the last projections of layers give: ``asked`` has inputs
    for that, ``empty`` and ``zeros`` inputs that have such values unless they are given, and
    ``other`` has values that do something.
    """
    random = np.random.default_rng(3)
    weights: dict[str, Any] = {
        "table": random.standard_normal((VOCABULARY, WIDTH), np.float32),
        "head": random.standard_normal((WIDTH, VOCABULARY), np.float32) / 2,
        "one": np.array(1),
        "axis": np.array([1]),
    }
    angles = np.arange(CONTEXT)[:, None] / 100 ** (np.arange(HEAD // 2) / HEAD * 2)
    weights |= {"cos": np.cos(angles, dtype=np.float32), "sin": np.sin(angles, dtype=np.float32)}
    nodes = [
        node("ReduceSum", "attention_mask axis", "seen"),
        node("Sub", "seen one", "before64"),
        node("Cast", "before64", "before", to=onnx.TensorProto.INT32),
        node("Shape", "attention_mask", "sizes"),
        node("Gather", "sizes one", "total64"),
        node("Cast", "total64", "total", to=onnx.TensorProto.INT32),
        node("Gather", "table input_ids", "x0"),
    ]
    size = (HEADS + 2 * KEY_HEADS) * HEAD
    for i in range(LAYERS):
        weights[f"qkv{i}"] = random.standard_normal((WIDTH, size), np.float32) / 8
        weights[f"o{i}"] = random.standard_normal((HEADS * HEAD, WIDTH), np.float32) / 8
        past = f"past_key_values.{i}.key past_key_values.{i}.value"
        inputs = f"p{i} _ _ {past} before total cos sin" + (" position_ids" if positions else "")
        nodes += [
            node("MatMul", f"x{i} qkv{i}", f"p{i}"),
            node(
                "GroupQueryAttention", inputs, f"a{i} present.{i}.key present.{i}.value",
                domain="com.microsoft", num_heads=HEADS, kv_num_heads=KEY_HEADS, do_rotary=1,
            ),
            node("MatMul", f"a{i} o{i}", f"m{i}"),
            node("Add", f"x{i} m{i}", f"{'y' if lora else 'x'}{i + 1}"),
        ]  # fmt: skip
        if lora:
            nodes += [
                node("MatMul", f"a{i} lora_A{i}", f"down{i}"),
                node("MatMul", f"down{i} lora_B{i}", f"up{i}"),
                node("Add", f"y{i + 1} up{i}", f"x{i + 1}"),
            ]
    nodes.append(node("MatMul", f"x{LAYERS} head", "logits"))
    ids = ["input_ids", *(["position_ids"] if positions else [])]
    cache = ["b", KEY_HEADS, "past", HEAD]
    names = [f"{i}.{kind}" for i in range(LAYERS) for kind in ("key", "value")]
    inputs = [value(name, INT64, ["b", "n"]) for name in ids]
    inputs.append(value("attention_mask", INT64, ["b", "total"]))
    inputs += [value(f"past_key_values.{name}", FLOAT, cache) for name in names]
    for i in range(LAYERS) if lora else ():
        rank: Any = 0 if lora == "empty" else 2
        for name, sizes in ((f"lora_A{i}", [HEADS * HEAD, rank]), (f"lora_B{i}", [rank, WIDTH])):
            symbolic = ["r" if size == rank else size for size in sizes]
            inputs.append(value(name, FLOAT, sizes if lora == "zeros" else symbolic))
            if lora != "asked":
                weights[name] = np.full(sizes, lora == "other", np.float32) / 50
    outputs = [value("logits", FLOAT, ["b", "n", VOCABULARY])]
    outputs += [value(f"present.{name}", FLOAT, ["b", KEY_HEADS, "total", HEAD]) for name in names]
    if hidden:
        nodes.append(node("Identity", f"x{LAYERS}", "hidden_states"))
        outputs.append(value("hidden_states", FLOAT, ["b", "n", WIDTH]))
    made = model(nodes, inputs, outputs, weights, domains={"com.microsoft": 1})
    # As exporters do: nothing says of what rank the results of their operators are.
    made.graph.value_info.extend(value(f"a{i}", FLOAT, ["b", "n", WIDTH]) for i in range(LAYERS))
    return made


# Inputs that a convolution's state holds.
KEPT = 3


def with_convolution() -> onnx.ModelProto:
    """Return a decoder with a short convolution over tokens after its last layer."""
    proto = decoder()
    graph, random = proto.graph, np.random.default_rng(5)
    graph.node.pop()  # the head
    for name, shape in (("taps", [WIDTH, 1, KEPT + 1]), ("mix", [WIDTH, WIDTH])):
        array = random.standard_normal(shape, np.float32) / 4
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for name, number in (("from", -KEPT), ("to", 1 << 40), ("last", 2)):
        graph.initializer.append(onnx.numpy_helper.from_array(np.array([number]), name))
    state, layer = ["b", WIDTH, KEPT], LAYERS
    graph.node.extend(
        [
            node("Transpose", f"x{layer}", "turned", perm=[0, 2, 1]),
            node("Concat", f"past_conv.{layer} turned", "seen_all", axis=2),
            node("Conv", "seen_all taps", "convolved", group=WIDTH),
            node("Slice", "seen_all from to last", f"present_conv.{layer}"),
            node("Transpose", "convolved", "back", perm=[0, 2, 1]),
            node("MatMul", "back mix", "mixed"),
            node("Add", f"x{layer} mixed", "whole"),
            node("MatMul", "whole head", "logits"),
        ]
    )
    graph.input.append(value(f"past_conv.{layer}", FLOAT, state))
    graph.output.append(value(f"present_conv.{layer}", FLOAT, state))
    return proto


def with_recurrence() -> onnx.ModelProto:
    """Return a decoder with a convolution, and after it the sum of all tokens before.

    The states have the names and ranks that onnxruntime-genai looks for.
    """
    proto = with_convolution()
    graph, layer = proto.graph, LAYERS
    for values in (graph.input, graph.output):
        for each in values:
            each.name = each.name.replace("past_conv.", "past_key_values.")
            each.name = each.name.replace("present_conv.", "present.")
            if each.name in (f"past_key_values.{layer}", f"present.{layer}"):
                each.name += ".conv_state"
    for each in graph.node:
        for names in (each.input, each.output):
            renamed = [
                name.replace(f"past_conv.{layer}", f"past_key_values.{layer}.conv_state").replace(
                    f"present_conv.{layer}", f"present.{layer}.conv_state"
                )
                for name in names
            ]
            names[:] = renamed
    graph.node.pop()  # the head
    held = {"as_row": np.array([0, 1, WIDTH]), "as_state": np.array([0, 1, 1, WIDTH])}
    held |= {"second": np.array(1), "second_1": np.array([1]), "tenth": np.float32(0.1)}
    for name, array in held.items():
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    past, present = f"past_key_values.{layer}.recurrent_state", f"present.{layer}.recurrent_state"
    graph.node.extend(
        [
            node("Reshape", f"{past} as_row", "sum_before"),
            node("CumSum", "whole second", "sums"),
            node("Add", "sums sum_before", "sums_all"),
            node("ReduceSum", "whole second_1", "sum_new"),
            node("Add", "sum_new sum_before", "sum_after"),
            node("Reshape", "sum_after as_state", present),
            node("Mul", "sums_all tenth", "scaled"),
            node("Add", "whole scaled", "summed"),
            node("MatMul", "summed head", "logits"),
        ]
    )
    graph.input.append(value(past, FLOAT, ["b", 1, 1, WIDTH]))
    graph.output.append(value(present, FLOAT, ["b", 1, 1, WIDTH]))
    return proto


def write_recurrent(folder: Path) -> Path:
    """Write a folder of the type ``granitemoehybrid``, whose last layer has both kinds of state."""
    write_folder(folder, model={"type": "granitemoehybrid"})
    onnx.save(with_recurrence(), folder / "model.onnx")
    file = folder / "genai_config.json"
    said = json.loads(file.read_text())
    said["model"]["decoder"]["num_hidden_layers"] = LAYERS + 1
    file.write_text(json.dumps(said))
    return folder


def write_hybrid(folder: Path, **search: Any) -> Path:
    """Write a folder of the type ``lfm2``, whose last layer is a convolution."""
    write_folder(folder, model={"type": "lfm2"}, search=search)
    onnx.save(with_convolution(), folder / "model.onnx")
    file = folder / "genai_config.json"
    said = json.loads(file.read_text())
    section = said["model"]["decoder"]
    section["num_hidden_layers"] = LAYERS + 1
    section["inputs"]["past_conv_names"] = "past_conv.%d"
    section["outputs"] = {"present_conv_names": "present_conv.%d"}
    file.write_text(json.dumps(said))
    return folder


def write_adapter(path: Path, seed: int, rank: int = 2, **changes: Any) -> Path:
    """Write an adapter with random matrices; ``changes`` are arrays by name."""
    random = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for i in range(LAYERS):
        arrays[f"lora_A{i}"] = random.standard_normal((HEADS * HEAD, rank), np.float32) / 3
        arrays[f"lora_B{i}"] = random.standard_normal((rank, WIDTH), np.float32)
    arrays = {name: array for name, array in (arrays | changes).items() if array is not None}
    made = tenonnx.AdapterFormat()
    made.set_parameters({name: tenonnx.OrtValue(array) for name, array in arrays.items()})
    made.export_adapter(path)
    return path


def tokenizer() -> dict[str, Any]:
    """Return a ``tokenizer.json`` whose tokens are bytes, and some special ones."""
    special = ["<s>", "</s>", "<pad>", "<|user|>", "<|assistant|>"]
    added = [
        {
            "id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": i < 3,
        }
        for i, text in enumerate(special)
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    level["use_regex"] = False
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": {letter: i for i, letter in enumerate(letters())}, "merges": [],
        },
    }  # fmt: skip


def letters() -> list[str]:
    """Return the character that stands for each byte, as GPT-2 has them."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]
