"""The kind of a file that is no ONNX model, and advice on how to use such a file."""

from __future__ import annotations

from typing import Final, NamedTuple


class Likeness(NamedTuple):
    """The kind of a file that is no ONNX model.

    Attributes:
        what: As in "not an ONNX model but a web page".
        mend: What to do, in a sentence.
    """

    what: str
    mend: str


DECOMPRESS: Final = "Decompress it first."
INCOMPLETE: Final = "Was the download or export completed?"
ANSWER: Final = "Was it downloaded? Then that is the server's answer, and not the file."
FROM_TORCH: Final = "Export the model with torch.onnx.export."
FROM_TENSORFLOW: Final = "Convert it with tf2onnx."

# By how a file begins, in small letters.
BEGINNINGS: Final = {
    b"version https://git-lfs": Likeness(
        "a Git LFS pointer", "Run `git lfs pull` in the model's repository."
    ),
    b"<!doctype": Likeness("a web page", ANSWER),
    b"<html": Likeness("a web page", ANSWER),
    b"<?xml": Likeness(
        "XML", "If it is OpenVINO's, openvino reads it: convert the model that it was made from."
    ),
    b"ir_version:": Likeness(
        "an ONNX model as text", "Convert it: onnx.save(onnx.load(path, format='textproto'), ...)."
    ),
    b"<ir_version": Likeness(
        "an ONNX model as text", "Convert it: onnx.save(onnx.parser.parse_model(text), ...)."
    ),
    b"\x1f\x8b": Likeness("a gzip file", DECOMPRESS),
    b"\xfd7zxz": Likeness("an xz file", DECOMPRESS),
    b"\x28\xb5\x2f\xfd": Likeness("a zstd file", DECOMPRESS),
    b"bzh": Likeness("a bzip2 file", DECOMPRESS),
    b"\x89hdf": Likeness("an HDF5 file, such as Keras writes", FROM_TENSORFLOW),
    b"gguf": Likeness("a GGUF file, which llama.cpp reads", "Export the model as ONNX."),
    b"\x93numpy": Likeness("an array of numpy's", "Give it as an input."),
    b"ftrt": Likeness("an engine of TensorRT", "Use the model that it was built from."),
    **{
        bytes((0x80, protocol)): Likeness("a Python pickle, such as torch.save writes", FROM_TORCH)
        for protocol in (2, 3, 4, 5)
    },
}

# By the ending of a zip archive's first member.
MEMBERS: Final = {
    ".pkl": Likeness("what torch.save writes", FROM_TORCH),
    ".npy": Likeness("arrays of numpy's", "Give them as inputs."),
    ".onnx": Likeness("a zip archive that holds one", "Extract it."),
}


def looks_like(buffer: memoryview) -> Likeness | None:
    """Return what a buffer looks like, if its first bytes make that clear."""
    head = bytes(buffer[:256])
    if not head:
        return Likeness("empty", INCOMPLETE)
    if not any(head):
        return Likeness("nothing but zeros", INCOMPLETE)
    if head[4:8] == b"ORTM":
        return Likeness(
            "an .ort file", "The plug-in ort_format reads it: `tenonnx convert` makes it .onnx."
        )
    if head[4:8] == b"TFL3":
        return Likeness("a TensorFlow Lite model", FROM_TENSORFLOW)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= len(buffer) - 8:
        return Likeness("a safetensors file: weights without a graph", "Export the model as ONNX.")
    if head.startswith(b"PK\x03\x04"):
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")].decode("utf-8", "replace")
        unknown = Likeness("a zip archive", "Extract it, if the model is in it.")
        return next((like for end, like in MEMBERS.items() if name.endswith(end)), unknown)
    beginning = head.lstrip().lower()
    for prefix, like in BEGINNINGS.items():
        if beginning.startswith(prefix):
            return like
    if text := _text(head):
        return Likeness(f"text: {' '.join(text.split())[:60]!r}", ANSWER)
    return None


def _text(head: bytes) -> str:
    """Return what the first bytes say, if they are text."""
    try:
        text = head.decode("utf-8", "strict" if len(head) < 256 else "ignore")
    except UnicodeDecodeError:
        return ""
    return text if all(mark.isprintable() or mark.isspace() for mark in text) else ""
