"""Folders of models of images, made here: an encoder of pixels, an embedding and a decoder.

Their graphs have the inputs and outputs of those that onnxruntime-genai's examples export for
Gemma 3 and Qwen 2.5, and almost no weights.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image

from folders import HEAD, WIDTH, configuration, decoder, tokenizer
from models import FLOAT, INT64, model, node, value

NDArray = np.ndarray[Any, np.dtype[Any]]

# Special tokens after those of `folders.tokenizer`.
GEMMA = ["<start_of_image>", "<image_soft_token>", "<end_of_image>"]
QWEN = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]
FIRST = 261
IMAGE_TOKEN = FIRST + 1

# Of Gemma: pixels of a side, and tokens of an image. Of Qwen: pixels of a patch.
SIDE, TOKENS, PATCH = 28, 256, 2

PLACE = "{% if c.type == 'image' %}PLACE{% else %}{{ c.text }}{% endif %}"
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}"
    "{{ m.content }}{% else %}{% for c in m.content %}" + PLACE + "{% endfor %}{% endif %}"
    "{% endfor %}<|assistant|>"
)


def write_pictured(folder: Path, kind: str, **changes: Any) -> Path:
    """Write a folder of a type; ``changes`` are of ``model`` in its configuration."""
    folder.mkdir(exist_ok=True, parents=True)
    qwen = kind != "gemma3"
    onnx.save(vision(qwen), folder / "vision.onnx")
    onnx.save(embedding(qwen), folder / "embedding.onnx")
    onnx.save(embedded_decoder(qwen), folder / "model.onnx")
    config = configuration()
    inputs = {"inputs_embeds": "inputs_embeds", "past_key_names": "past_key_values.%d.key"}
    config["model"]["decoder"] |= {"hidden_size": WIDTH, "inputs": inputs}
    config["model"]["decoder"]["num_attention_heads"] = 4
    named = {"inputs": {"pixel_values": "pixel_values"}, "filename": "vision.onnx"}
    if qwen:
        named["inputs"]["image_grid_thw"] = "image_grid_thw"
        named |= {"spatial_merge_size": 2, "patch_size": PATCH}
        config["model"] |= {"image_token_id": IMAGE_TOKEN, "vision_start_token_id": FIRST}
    config["model"] |= {
        "type": kind,
        "context_length": 1024,
        "vision": named,
        "embedding": {"filename": "embedding.onnx"},
        **changes,
    }
    config["search"]["max_length"] = 1024
    (folder / "genai_config.json").write_text(json.dumps(config))
    operations = qwen_operations() if qwen else gemma_operations()
    (folder / "processor_config.json").write_text(json.dumps(processing(operations)))
    place = QWEN[0] + QWEN[1] + QWEN[2] if qwen else GEMMA[0]
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    tokens |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    tokens["chat_template"] = TEMPLATE.replace("PLACE", place)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    made = tokenizer()
    like = made["added_tokens"][0]
    made["added_tokens"] += [
        like | {"id": FIRST + i, "content": text} for i, text in enumerate(QWEN if qwen else GEMMA)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(made))
    return folder


def processing(operations: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    listed = [
        {"operation": {"name": kind.lower(), "type": kind, **({"attrs": attrs} if attrs else {})}}
        for kind, attrs in operations
    ]
    return {"processor": {"name": "image_processor", "transforms": listed}}


def gemma_operations() -> list[tuple[str, dict[str, Any]]]:
    resized = {"interpolation": "CUBIC", "width": SIDE, "height": SIDE, "keep_aspect_ratio": 0}
    return [
        ("DecodeImage", {"color_space": "RGB"}),
        ("Resize", resized),
        ("Rescale", {}),
        ("Normalize", {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}),
        ("Permute3D", {"dims": [2, 0, 1]}),
    ]


def qwen_operations() -> list[tuple[str, dict[str, Any]]]:
    sizes = {"patch_size": PATCH, "merge_size": 2}
    smart = {"smart_resize": 1, "min_pixels": 64, "max_pixels": 1024, "width": 32, "height": 32}
    return [
        ("DecodeImage", {"color_space": "RGB"}),
        ("ConvertRGB", {}),
        ("Resize", {**smart, **sizes}),
        ("Rescale", {"rescale_factor": 1 / 255}),
        ("Normalize", {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4], "qwen2_5_vl": 1}),
        ("PatchImage", {**sizes, "temporal_patch_size": 2}),
    ]


def vision(qwen: bool) -> onnx.ModelProto:
    """Return a graph from pixels to features: sums of pixels, times weights."""
    random = np.random.default_rng(7)
    if qwen:
        columns = 3 * 2 * PATCH * PATCH * 4
        nodes = [node("Reshape", "pixel_values shape", "tokens")]
        inputs = [
            value("pixel_values", FLOAT, ["patches", columns // 4]),
            value("image_grid_thw", INT64, ["images", 3]),
        ]
        shape, features = [-1, columns], ["tokens", WIDTH]
        # The grid takes part, so that a wrong one shows.
        held = {"factor": np.float32([[0, 0.01, 0.03]])}
        nodes += [
            node("Cast", "image_grid_thw", "grid", to=FLOAT),
            node("Mul", "grid factor", "scaled"),
            node("ReduceSum", "scaled", "told", keepdims=0),
            node("MatMul", "tokens weights", "plain"),
            node("Add", "plain told", "image_features"),
        ]
    else:
        columns = 3 * SIDE * SIDE // TOKENS + 1
        held = {"pads": np.array([0, 0, 0, columns * TOKENS - 3 * SIDE * SIDE])}
        held["flat"] = np.array([0, -1])
        nodes = [
            node("Reshape", "pixel_values flat", "row"),
            node("Pad", "row pads", "padded"),
            node("Reshape", "padded shape", "tokens"),
            node("MatMul", "tokens weights", "image_features"),
        ]
        inputs = [value("pixel_values", FLOAT, ["images", 3, SIDE, SIDE])]
        shape, features = [-1, TOKENS, columns], ["images", TOKENS, WIDTH]
    held |= {"shape": np.array(shape)}
    held["weights"] = random.standard_normal((columns, WIDTH), np.float32) / 4
    return model(nodes, inputs, [value("image_features", FLOAT, features)], held)


def embedding(qwen: bool) -> onnx.ModelProto:
    """Return the embedding of tokens, with features in the places of image tokens, in order."""
    table = next(each for each in decoder().graph.initializer if each.name == "table")
    held = {"table": onnx.numpy_helper.to_array(table), "token": np.array(IMAGE_TOKEN)}
    held |= {"width": np.array([-1, WIDTH])}
    nodes = [
        node("Gather", "table input_ids", "plain"),
        node("Equal", "input_ids token", "is_image"),
        node("NonZero", "is_image", "places_t"),
        node("Transpose", "places_t", "places", perm=[1, 0]),
        node("Reshape", "image_features width", "rows"),
        node("ScatterND", "plain places rows", "inputs_embeds"),
    ]
    inputs = [
        value("input_ids", INT64, ["b", "n"]),
        value("image_features", FLOAT, ["k", WIDTH] if qwen else ["images", "k", WIDTH]),
    ]
    return model(nodes, inputs, [value("inputs_embeds", FLOAT, ["b", "n", WIDTH])], held)


def embedded_decoder(qwen: bool) -> onnx.ModelProto:
    """Return `folders.decoder` with embedded tokens, and positions that are added to them."""
    proto = decoder()
    graph = proto.graph
    gather = next(each for each in graph.node if each.output[0] == "x0")
    graph.node.remove(gather)
    kept = [each for each in graph.initializer if each.name != "table"]
    long = np.arange(1024)[:, None] / 100 ** (np.arange(HEAD // 2) / HEAD * 2)
    for each in kept:
        if each.name in ("cos", "sin"):
            array = getattr(np, each.name)(long, dtype=np.float32)
            each.CopyFrom(onnx.numpy_helper.from_array(array, each.name))
    del graph.initializer[:]
    graph.initializer.extend(kept)
    random = np.random.default_rng(9)
    axes = 3 if qwen else 1
    tables = random.standard_normal((axes, 1024, WIDTH), np.float32) / 4
    added, before = [], "inputs_embeds"
    for axis in range(axes):
        graph.initializer.append(onnx.numpy_helper.from_array(tables[axis], f"places{axis}"))
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(axis), f"axis{axis}"))
        taken = "position_ids"
        if qwen:
            added.append(node("Gather", f"position_ids axis{axis}", f"of{axis}", axis=0))
            taken = f"of{axis}"
        after = "x0" if axis == axes - 1 else f"sum{axis}"
        added.append(node("Gather", f"places{axis} {taken}", f"place{axis}"))
        added.append(node("Add", f"{before} place{axis}", after))
        before = after
    others = list(graph.node)
    del graph.node[:]
    graph.node.extend([*added, *others])
    inputs = [each for each in graph.input if each.name != "input_ids"]
    del graph.input[:]
    positions: list[Any] = [3, "b", "n"] if qwen else ["b", "n"]
    graph.input.extend(
        [
            value("inputs_embeds", FLOAT, ["b", "n", WIDTH]),
            value("position_ids", INT64, positions),
            *inputs,
        ]
    )
    return proto


def picture(width: int, height: int, seed: int = 0, form: str = "PNG") -> bytes:
    """Return the file of an image of random colors, smooth enough for any resampling."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (4, 4, 3), np.uint8)
    image = Image.fromarray(small).resize((width, height), Image.Resampling.BILINEAR)
    file = io.BytesIO()
    image.save(file, form)
    return file.getvalue()
