"""How each target's inputs are changed: a frame of the stream, a field of a message, and so on."""

import struct

from fuzz_codec import REQUEST, RESPONSE, VERSIONED_CLASSES
from fuzz_messages import KEYS, OF_THE_CONTROLLER, Nonsense
from fuzz_mutations import Mutator, frames, joined

from ottla.wire import codec
from ottla.wire.apis import APIS

MOST_FRAMES = 8


def stream(data, rng, target):
    """Change one frame, add one, leave one out, or spoil the sizes between them."""
    parts, rest = frames(data)
    mutator = Mutator(rng, target.topic_ids)
    draw = rng.random()
    if not parts or draw < 0.15:
        keys = KEYS if rng.random() < 0.93 else sorted(OF_THE_CONTROLLER)
        made = Nonsense(rng.randrange(2**31), topic_ids=target.topic_ids).any_request(keys)
        parts.insert(rng.randrange(len(parts) + 1), made)
        del parts[MOST_FRAMES:]
    elif draw < 0.2:
        del parts[rng.randrange(len(parts))]
    elif draw < 0.24:
        parts.append(rng.choice(parts))
    elif draw < 0.27:
        return mutator.bytes(data)
    elif draw < 0.29:
        rest = rng.choice((b"", b"\xff\xff\xff\xff", b"GET ", b"\0\0\0", b"\x7f\xff\xff\xff\0"))
    else:
        at = rng.randrange(len(parts))
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            parts[at] = mutator.request(parts[at])
    return joined(parts, rest)


def message(data, rng, target):
    """Change a field of the message."""
    mutator = Mutator(rng, target.topic_ids)
    if len(data) < 6:
        return mutator.bytes(data)
    kind, raw = data[0] % 3, data[1:]
    if kind == REQUEST:
        return data[:1] + mutator.request(raw)
    if kind == RESPONSE:
        return data[:1] + _answer(raw, rng, mutator)
    return data[:1] + _versioned(raw, rng, mutator)


def _versioned(raw, rng, mutator):
    """Change a field of a class's number, version and body."""
    cls = VERSIONED_CLASSES[raw[0] % len(VERSIONED_CLASSES)]
    (version,) = struct.unpack_from(">h", raw, 1)
    if rng.random() < 0.1:
        return mutator.bytes(raw)
    return mutator.body(cls.LAYOUT, version, cls.FLEXIBLE_VERSION, raw, 3)


def answers(data, rng, target):
    """Change a field of one of the answers, or say one twice."""
    mutator = Mutator(rng, target.topic_ids)
    parts, _ = frames(data[1:])
    if not parts or rng.random() < 0.05:
        return bytes((rng.randrange(2),)) + mutator.bytes(data[1:])
    if rng.random() < 0.1:
        return data[:1] + joined([*parts, rng.choice(parts)][:MOST_FRAMES])
    at = rng.randrange(len(parts))
    for _ in range(rng.choice((1, 1, 2))):
        parts[at] = _answer(parts[at], rng, mutator)
    return data[:1] + joined(parts)


def _answer(raw, rng, mutator):
    if len(raw) < 4:
        return mutator.bytes(raw)
    key, version = struct.unpack_from(">hh", raw)
    spec = APIS.get(key)
    if spec is None or not spec.supports(version) or rng.random() < 0.05:
        return mutator.bytes(raw)
    layout = codec.response_class(key).LAYOUT
    return mutator.body(layout, version, spec.flexible_version, raw, 4)


def coordination(data, rng, target):
    """Change one request, say one twice or leave one out; now and then, who says it."""
    mutator = Mutator(rng, target.topic_ids)
    parts, rest = frames(data[1:])
    draw = rng.random()
    if not parts or draw < 0.1:
        return bytes((rng.randrange(4),)) + mutator.bytes(data[1:])
    at = rng.randrange(len(parts))
    if draw < 0.2:
        parts.insert(rng.randrange(len(parts) + 1), parts[at])
    elif draw < 0.25:
        del parts[at]
    else:
        parts[at] = mutator.bytes(parts[at])
    return data[:1] + joined(parts, rest)


def batch(data, rng, target):
    mutator = Mutator(rng, target.topic_ids)
    if not data or rng.random() < 0.05:
        return bytes((rng.randrange(8),)) + data[1:]
    return data[:1] + mutator.batch(data[1:])


def compressed(data, rng, target):
    """Change any byte but the first, which says what they are."""
    mutator = Mutator(rng, target.topic_ids)
    return mutator.bytes(data, min(1, len(data)))


FILES_OF = {4: 3, 5: 1, 6: 5}
"""Which of the versioned classes a kind of file holds."""


def file(data, rng, target):
    mutator = Mutator(rng, target.topic_ids)
    if len(data) > 4 and data[0] % 7 in FILES_OF and rng.random() < 0.9:
        number = FILES_OF[data[0] % 7]
        return data[:1] + _versioned(bytes((number,)) + data[1:], rng, mutator)[1:]
    return mutator.bytes(data, min(1, len(data)))


MUTATIONS = {
    "broker": stream,
    "peers": answers,
    "coordination": coordination,
    "messages": message,
    "batches": batch,
    "compression": compressed,
    "files": file,
    "texts": compressed,
}
