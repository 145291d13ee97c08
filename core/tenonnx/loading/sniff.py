"""What the bytes are that turned out not to be an ONNX model."""

from __future__ import annotations

PREFIXES = {
    b"version https://git-lfs": "a Git LFS pointer: run `git lfs pull` in the model's repository",
    b"\x1f\x8b": "a gzip file: decompress it first",
    b"PK\x03\x04": "a zip archive, such as torch.save writes: export the model with torch.onnx",
    b"\x80\x02": "a Python pickle: export the model with torch.onnx",
    b"\x89HDF": "an HDF5 file, such as Keras writes: convert it with tf2onnx",
    b"GGUF": "a GGUF file, which llama.cpp reads",
    b"<!": "a web page: the download was not of the file itself",
    b"<html": "a web page: the download was not of the file itself",
    b"ir_version:": "an ONNX model as text: convert it with onnx.load and onnx.save",
    b"<ir_version": "an ONNX model as text: convert it with onnx.parser and onnx.save",
    b"\xfd7zXZ": "an xz file: decompress it first",
    b"\x28\xb5\x2f\xfd": "a zstd file: decompress it first",
    b"BZh": "a bzip2 file: decompress it first",
}


def looks_like(buffer: memoryview) -> str | None:
    """Returns what a buffer's first bytes look like and what to do with it, if that is clear."""
    head = bytes(buffer[:256])
    if not head:
        return "empty: was the download or export completed?"
    if head[4:8] == b"ORTM":
        return "an .ort flatbuffer of onnxruntime: convert the .onnx file it was made from"
    if head[4:8] == b"TFL3":
        return "a TensorFlow Lite model: convert it with tf2onnx"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= len(buffer) - 8:
        return "a safetensors file: it has weights, but no graph"
    for prefix, what in PREFIXES.items():
        if head.lstrip().lower().startswith(prefix.lower()):
            return what
    if head[:1] in b"{[":
        return "JSON" if _is_text(head) else None
    if not any(head):
        return "nothing but zeros: was the download completed?"
    return "text" if _is_text(head) else None


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8", "strict" if len(head) < 256 else "ignore")
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)
