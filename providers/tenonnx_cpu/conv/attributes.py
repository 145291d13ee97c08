"""A convolution's attributes, and where they put its windows."""

from __future__ import annotations

from dataclasses import dataclass

from tenonnx.by_name import cacheable
from tenonnx_array.windows import Windows, placement
from tenonnx_cpu.kernel_selection import Site


@cacheable
@dataclass(frozen=True)
class Attributes:
    """A convolution's attributes."""

    group: int
    kernel: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    dilations: tuple[int, ...] | None
    pads: tuple[int, ...] | None
    auto_pad: str

    @classmethod
    def of(cls, site: Site) -> Attributes:
        """Return the attributes of a node."""

        def numbers(name: str) -> tuple[int, ...] | None:
            value = site.attribute(name, None)
            return None if value is None else tuple(value)

        return cls(
            site.attribute("group", 1),
            numbers("kernel_shape"),
            numbers("strides"),
            numbers("dilations"),
            numbers("pads"),
            site.attribute("auto_pad", "NOTSET"),
        )

    def placed(self, x: tuple[int, ...], w: tuple[int, ...]) -> Windows | None:
        """Return the windows of one to three dimensions; ``None`` if shapes do not fit."""
        if len(x) != len(w) or len(x) not in (3, 4, 5) or 0 in (*x, *w):
            return None
        if x[1] != w[1] * self.group or w[0] % self.group or self.kernel not in (None, w[2:]):
            return None
        try:
            known = placement(w[2:], self.strides, self.dilations, self.pads, self.auto_pad)
            windows = known.at(x[2:])
        except ValueError:
            return None
        return windows if windows.is_near and 0 not in windows.output else None

    def windows(self, x: tuple[int, ...], w: tuple[int, ...]) -> Windows | None:
        """Return the windows of an image of one or two dimensions; ``None`` if shapes do not fit.

        A line is an image of one row.
        """
        windows = self.placed(x, w) if len(x) < 5 else None
        return None if windows is None else as_image(windows)


def as_image(windows: Windows) -> Windows:
    """Return windows of a line as those of an image of one row; of images, they themselves."""
    if len(windows.size) > 1:
        return windows
    ahead = ((1,), (1,), (1,), (1,), (0,), (0,), (1,))
    fields = (
        windows.size, windows.kernel, windows.strides, windows.dilations,
        windows.begins, windows.ends, windows.output,
    )  # fmt: skip
    return Windows(*(one + own for one, own in zip(ahead, fields, strict=True)))
