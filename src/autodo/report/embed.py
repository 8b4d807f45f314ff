"""Data inside a page: arrays as base64, pictures as data URIs, JSON that no text breaks out of."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image

_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&'\u2028\u2029"}


def json_text(data: Any) -> Markup:
    """JSON for a <script type="application/json">, whatever the strings in it say.

    >>> str(json_text({"name": "</script><script>alert(1)"}))
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003cscript\\\\u003ealert(1)"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_ESCAPES))


def packed(values: np.ndarray | list[int], dtype: str) -> str:
    """Numbers as base64 of little-endian ``dtype``, which a typed array reads."""
    little = np.asarray(values).astype(np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode()


def data_uri(image: bytes) -> str:
    """A WebP picture as a data URI."""
    return "data:image/webp;base64," + base64.b64encode(image).decode()


def within(images: Iterable[bytes], budget: int) -> int:
    """How many of the first images fit into ``budget`` bytes.

    >>> within([b"123", b"45", b"6"], 5)
    2
    """
    count = used = 0
    for image in images:
        used += len(image)
        if used > budget:
            break
        count += 1
    return count


def squeezed(image: bytes, budget: int) -> bytes | None:
    """The WebP picture in at most ``budget`` bytes, if need be at a lower quality; None if not."""
    if len(image) <= budget:
        return image
    picture = Image.open(io.BytesIO(image))
    for quality in (60, 40, 20, 5):
        buffer = io.BytesIO()
        picture.save(buffer, format="WEBP", quality=quality)
        if buffer.tell() <= budget:
            return buffer.getvalue()
    return None


def script_hash(script: str) -> str:
    """The word by which a Content-Security-Policy allows this inline script and no other."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
