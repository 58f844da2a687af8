"""The order in which the JVM's maps are written, so that our JSON has the same bytes.

Kafka builds its JSON from Scala and Java hash maps; which key comes first is decided by hashes and
table sizes. Order carries no meaning, but equal bytes make znodes comparable across a mixed
cluster. Kafka: scala.collection.{mutable,immutable}.HashMap (2.13) and
java.util.concurrent.ConcurrentHashMap (under `Properties`).
"""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

V = TypeVar("V")
_LOAD_FACTOR = 0.75


def java_hash(text: str) -> int:
    """Return `String.hashCode` as an unsigned 32-bit number."""
    result = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(raw), 2):
        result = (31 * result + (raw[i] << 8 | raw[i + 1])) & 0xFFFFFFFF
    return result


def _spread(text: str) -> int:
    h = java_hash(text)
    return h ^ h >> 16


def _power_of_two(at_least: int) -> int:
    return 1 << max(4, at_least - 1).bit_length() if at_least > 4 else 4


def scala_mutable(
    entries: Mapping[str, V], *, built_with: int = 0, key: Callable[[str], str] = str
) -> dict[str, V]:
    """Order as a Scala mutable map made of `built_with` entries, the others added one by one."""
    size = _power_of_two(int((built_with + 1) / _LOAD_FACTOR)) if built_with else 16
    while len(entries) >= int(size * _LOAD_FACTOR):
        size *= 2

    def place(item: tuple[str, V]) -> tuple[int, int]:
        h = _spread(key(item[0]))
        return h & (size - 1), h - (1 << 32) if h >> 31 else h

    return dict(sorted(entries.items(), key=place))


def scala_immutable(entries: Mapping[str, V]) -> dict[str, V]:
    """Order as a Scala immutable map: as given up to four entries, a hash trie beyond."""
    if len(entries) <= 4:
        return dict(entries)
    hashes = {name: _improve(java_hash(name)) for name in entries}
    return {name: entries[name] for name in _trie_order(list(entries), hashes, 0)}


def _improve(h: int) -> int:
    h = (h + ~(h << 9)) & 0xFFFFFFFF
    h ^= h >> 14
    h = (h + (h << 4)) & 0xFFFFFFFF
    return h ^ h >> 10


def _trie_order(names: Collection[str], hashes: Mapping[str, int], shift: int) -> list[str]:
    if shift > 30:
        return list(names)  # equal hashes: in the order added
    slots: dict[int, list[str]] = {}
    for name in names:
        slots.setdefault(hashes[name] >> shift & 31, []).append(name)
    order = [slots[slot][0] for slot in sorted(slots) if len(slots[slot]) == 1]
    for slot in sorted(slots):
        if len(slots[slot]) > 1:
            order += _trie_order(slots[slot], hashes, shift + 5)
    return order


def java_properties(entries: Mapping[str, V]) -> dict[str, V]:
    """Order as a java.util.Properties that had 16 slots at first and doubles when 3/4 full."""
    size = 16
    while len(entries) >= size - (size >> 2):
        size *= 2
    return dict(sorted(entries.items(), key=lambda item: _spread(item[0]) & (size - 1)))
