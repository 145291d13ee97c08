"""ImageDecoder: pictures in the formats that Pillow reads."""

from __future__ import annotations

import io

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable

table = OperatorTable()
op = table.op

# Pixel format to Pillow's mode.
PILLOW_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@op("ImageDecoder", since=20, host="all")
def image_decoder(xp: Namespace, encoded_stream: Array, *, pixel_format: str = "RGB") -> Array:
    """Return the picture as uint8 (height, width, channels); empty if it cannot be decoded.

    Raises:
        ValueError: The pixel format is unknown.
        ImportError: Pillow is not installed.
    """
    if pixel_format not in PILLOW_MODES:
        raise ValueError(
            f"expected pixel_format to be {', '.join(PILLOW_MODES)}, found {pixel_format!r}"
        )
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "ImageDecoder reads pictures with Pillow, which is not installed: "
            "pip install 'tenonnx[images]'"
        ) from error
    try:
        with Image.open(io.BytesIO(encoded_stream.tobytes())) as image:
            pixels = xp.asarray(image.convert(PILLOW_MODES[pixel_format]))
    except Exception:  # Pillow's errors for damaged files have no common base class
        return np.zeros((0, 0, 1 if pixel_format == "Grayscale" else 3), np.uint8)
    if pixel_format == "Grayscale":
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels
