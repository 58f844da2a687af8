"""The headers of many batches as one numpy array.

Apart from `batches`, so that what needs the headers alone does not import Arrow: that takes longer
than a small file does. Kafka: `DefaultRecordBatch`.
"""

from typing import Any

import numpy as np

from ottla.pipelines.segments.reading import Piece
from ottla.wire.batch_header import HEADER_BYTES, LAYOUT

HEADER_DTYPE = np.dtype([(name, ">" + letter) for name, letter in LAYOUT])
assert HEADER_DTYPE.itemsize == HEADER_BYTES


def headers_of(piece: Piece) -> np.ndarray[Any, Any]:
    """Return the headers of a piece as one structured array."""
    return np.frombuffer(b"".join(piece.headers), HEADER_DTYPE)
