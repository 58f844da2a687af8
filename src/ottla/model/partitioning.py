"""The partition of a key by Kafka's hash, so that our tools and Java's choose the same one.

Pure functions. Kafka: `BuiltInPartitioner.partitionForKey` and `Utils.murmur2`.
"""

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 of `data`, as an unsigned number of 32 bits."""
    length = len(data)
    hashed = SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        hashed = hashed * MULTIPLIER & MASK ^ word
    if length > whole:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = hashed * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & MASK
    return hashed ^ hashed >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key among `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
