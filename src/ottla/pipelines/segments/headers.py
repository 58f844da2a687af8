"""The headers of many batches as one numpy array.

Who may call: this package, `pipelines.replica_files`. Apart from `batches`, so that what needs the
headers alone does not import Arrow: that takes longer than a small file does. Kafka:
`DefaultRecordBatch`.
"""

from typing import Any

import numpy as np

from ottla.pipelines.segments.reading import Piece
from ottla.wire.records import HEADER_BYTES

HEADER_DTYPE = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
assert HEADER_DTYPE.itemsize == HEADER_BYTES


def headers_of(piece: Piece) -> np.ndarray[Any, Any]:
    """Return the headers of a piece as one structured array."""
    return np.frombuffer(b"".join(piece.headers), HEADER_DTYPE)
