"""The rows of processes in words; a row without an entry has its own name."""

from __future__ import annotations

CASES = {
    "external-1g": "1 GiB of matrices in a file beside the model",
    "inline-aligned-1g": "1 GiB of matrices in the model's file, aligned",
    "inline-unaligned-1g first": "1 GiB of matrices at odd places of a file, first process",
    "inline-unaligned-1g second": "1 GiB of matrices at odd places of a file, second process",
    "ten-sessions": "ten sessions of one file of 512 MiB",
    "tied-if-1g": "one matrix of 1 GiB in both branches of an If",
    "dispatch": "200 Relus over 4 doubles",
    "fold": "1.5 GB of weights, each behind constant Transposes and Reshapes",
    "qdq-int4": "8 of Phi-3-mini's 32 layers, int4 weights as QDQ nodes",
    "tied-if": "one matrix in both branches of an If, 1 GiB",
    "ort x1": ".ort file of 1 GiB, one process",
    "ort x4": ".ort file of 1 GiB, 4 processes at once",
    "ort x8": ".ort file of 1 GiB, 8 processes at once",
    "ort resnet50": "ResNet-50 as an .ort file",
}
LAYERS, INT4 = " layers", " int4"
TINY = ("resnet", "mobilenet")


def in_words(case: str) -> str:
    """Return what a case is."""
    if case in CASES or not case.endswith(LAYERS):
        return CASES.get(case, case)
    model = case.removesuffix(LAYERS)
    if model in TINY:
        return f"tiny {model} of a few channels"
    if model.endswith(INT4):
        return f"2 layers of {model.removesuffix(INT4)}, 4-bit weights"
    return f"2 layers of {model}"
