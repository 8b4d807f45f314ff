"""What a step frees on a CPU stays with the process, and the next step need not ask for it again.

glibc hands large blocks back to the system when they are freed; each step then waits for the system
to give it zeroed pages for its activations, and that takes as long as a convolution.
"""

from __future__ import annotations

import ctypes
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""As mallopt numbers them."""
FROM_THE_HEAP = 1 << 30
"""Bytes of the largest block that is kept; larger ones go back to the system as they did."""
KEPT = 2**31 - 1
"""Bytes at the end of the heap that are kept: all that mallopt can say."""


@cache
def keep_freed_memory() -> bool:
    """Tell glibc, once for the process; False where malloc is another one that cannot be told."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # TypeError: Windows
        return False
    return bool(mallopt(MMAP_THRESHOLD, FROM_THE_HEAP) and mallopt(TRIM_THRESHOLD, KEPT))
