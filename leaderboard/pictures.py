"""Small images on the pages: as PNG files, and inside an SVG in the file itself, every pixel a square."""

from __future__ import annotations

import base64
import io

import numpy as np
from markupsafe import Markup
from PIL import Image


def picture(pixels: np.ndarray, x: float, y: float, width: float, height: float | None = None) -> Markup:
    """Pixels (H×W×3, or ×4 with opacity, uint8) at a place, so wide; as high as wide, unless `height` is given."""
    return Markup(
        '<image x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" preserveAspectRatio="none" '
        'image-rendering="pixelated" href="data:image/png;base64,{}"/>'
    ).format(x, y, width, width if height is None else height, base64.b64encode(png(pixels, 9)).decode())


def frame(x: float, y: float, width: float, height: float) -> Markup:
    return Markup('<rect class="frame" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
        x, y, width, height
    )


def as_bytes(images: np.ndarray) -> np.ndarray:
    """Images in [0,1], cut off outside, as uint8; any shape."""
    return np.asarray(np.rint(np.clip(images, 0, 1) * 255), np.uint8)


def tiles(images: np.ndarray, columns: int, gap: int = 0) -> np.ndarray:
    """Images (N×H×W×3, uint8) in rows of so many, with clear pixels between and around them (H'×W'×4)."""
    count, height, width, _ = images.shape
    rows = -(-count // columns)
    sheet = np.zeros((rows * (height + gap) + gap, columns * (width + gap) + gap, 4), np.uint8)
    for place, image in enumerate(images):
        row, column = divmod(place, columns)
        top, left = gap + row * (height + gap), gap + column * (width + gap)
        sheet[top : top + height, left : left + width, :3] = image
        sheet[top : top + height, left : left + width, 3] = 255
    return sheet


def png(pixels: np.ndarray, compression: int) -> bytes:
    """Pixels (H×W×3 or ×4, uint8) as a PNG, compressed from 0, quickly, to 9, well."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", compress_level=compression)
    return stream.getvalue()
