"""Makes a folder that ``tenonnx generate`` and onnxruntime-genai open.

::

    python examples/generate/folder.py examples/generate/model
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx
from tokens import Tokenizer

END = "<|end|>"


def letters() -> list[str]:
    """Return the characters that stand for bytes in ``tokenizer.json``, as GPT-2 chose them."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]


def as_tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a tokenizer in the form of the ``tokenizers`` library: the same ids."""
    words = letters()
    merges = []
    for left, right in tokenizer.merges:
        merges.append([words[left], words[right]])
        words.append(words[left] + words[right])
    vocabulary = {word: token for token, word in enumerate(words)}
    if len(vocabulary) != len(words):
        raise ValueError("two tokens have the same bytes: the library tells tokens by them")
    split = r" ?[A-Za-z]+| ?[0-9]+| ?[^ \t\n\r\x0b\x0cA-Za-z0-9]+|[ \t\n\r\x0b\x0c]+"
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level["use_regex"] = False
    steps = [
        {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False},
        level,
    ]
    end = {"id": tokenizer.end, "content": END, "special": True, "normalized": False}
    end |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    return {
        "version": "1.0",
        "added_tokens": [end],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }


def configuration(model: onnx.ModelProto, end: int, context: int = 512) -> dict[str, Any]:
    """Return ``genai_config.json`` of a decoder that ``export.py`` made."""
    inputs = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
    caches = [name for name in inputs if name.endswith(".key")]
    _, heads, _, size = inputs[caches[0]]
    decoder = {
        "filename": "model.onnx",
        "num_hidden_layers": len(caches),
        "num_key_value_heads": heads.dim_value,
        "head_size": size.dim_value,
        "session_options": {"provider_options": []},
        "inputs": {
            "input_ids": "input_ids",
            "position_ids": "position_ids",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    about = {"type": "decoder", "vocab_size": end + 1, "context_length": context}
    about |= {"eos_token_id": end, "pad_token_id": end, "decoder": decoder}
    search = {"past_present_share_buffer": True, "max_length": context}
    return {"model": about, "search": search}


def complete(folder: Path) -> None:
    """Write the tokenizer's files and ``genai_config.json`` beside a model and its merges."""
    tokenizer = Tokenizer.load(folder / "merges.json")
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    files = {
        "tokenizer.json": as_tokenizer_json(tokenizer),
        "tokenizer_config.json": {"eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast"},
        "genai_config.json": configuration(model, tokenizer.end),
    }
    for name, content in files.items():
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
        (folder / name).write_text(text + "\n")


if __name__ == "__main__":
    complete(Path(sys.argv[1]))
