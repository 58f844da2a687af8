"""Golden bytes: what Kafka's own message classes write, we read and write again.

`messages.txt` covers all versions of all 66 keys; `filled.txt` has every field set, with the
values beside the bytes, so that two fields of one type cannot be mistaken for each other.
"""

import json
from pathlib import Path

import msgspec
import pytest

from ottla.model.errors import OttlaError
from ottla.wire import codec
from ottla.wire.apis import APIS
from ottla.wire.messages import groups, transactions

VECTORS = Path(__file__).parents[2] / "vectors"


def lines(name):
    text = (VECTORS / name).read_text(encoding="utf-8")
    return [line.split(" ") for line in text.splitlines() if not line.startswith("#")]


def decode(kind, key, version, raw):
    function = codec.decode_request if kind == "q" else codec.decode_response
    return function(key, version, memoryview(raw))


def encode(kind, message, version):
    function = codec.encode_request if kind == "q" else codec.encode_response
    return b"".join(function(message, version))


MESSAGES = [
    (kind, int(key), int(version), bytes.fromhex("".join(rest)))
    for kind, key, version, _mode, *rest in lines("messages.txt")
]
FILLED = [
    (kind, int(key), int(version), bytes.fromhex(raw), json.loads(" ".join(rest)))
    for kind, key, version, raw, *rest in lines("filled.txt")
]


def plain(value):
    """Return a message as dicts and lists, as the vector file spells it."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, memoryview)):
        return "hex:" + value.hex()
    return value


def only(shape, value):
    """Leave out of `value` the fields that `shape` (one version's fields) does not name."""
    if isinstance(shape, dict):
        return {name: only(shape[name], value[name]) for name in shape}
    if isinstance(shape, list):
        return [only(a, b) for a, b in zip(shape, value, strict=True)]
    return value


def build(cls, owner, value):
    """Return an object of `cls` from the dicts of the vector file."""
    fields = {}
    for layout in cls.LAYOUT.fields:
        if layout.name in value:
            fields[layout.name] = _value(layout, owner, value[layout.name])
    return cls(**fields)


def _value(layout, owner, value):
    if isinstance(value, list):
        return [_value(layout, owner, item) for item in value]
    if isinstance(value, dict):
        return build(getattr(owner, layout.struct.name), owner, value)
    if isinstance(value, str) and value.startswith("hex:"):
        return bytes.fromhex(value[4:])
    return value


def test_all_keys_and_versions_are_covered():
    seen = {(kind, key, version) for kind, key, version, _raw in MESSAGES}
    wanted = {
        (kind, spec.key, version)
        for spec in APIS.values()
        for version in range(spec.min_version, spec.max_version + 1)
        for kind in "qr"
    }
    assert wanted == seen
    assert len(MESSAGES) == 922


@pytest.mark.parametrize("key", sorted(APIS))
def test_jvm_bytes_come_back_unchanged(key):
    for kind, api_key, version, raw in MESSAGES:
        if api_key == key:
            message = decode(kind, key, version, raw)
            assert encode(kind, message, version).hex() == raw.hex(), (kind, version, message)


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_field_has_the_value_the_jvm_wrote(key):
    checked = 0
    for kind, api_key, version, raw, values in FILLED:
        if api_key == key:
            message = decode(kind, key, version, raw)
            assert only(values, plain(message)) == values, (kind, version)
            checked += 1
    assert checked >= 2


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_field_is_written_as_the_jvm_does(key):
    for kind, api_key, version, raw, values in FILLED:
        if api_key == key:
            spec = APIS[key]
            getter = codec.request_class if kind == "q" else codec.response_class
            cls = getter(key)
            message = build(cls, cls, values)
            assert encode(kind, message, version).hex() == raw.hex(), (kind, spec.name, version)


def test_one_changed_byte_is_noticed():
    """A flipped bit makes another message or none; never the same one."""
    flips = 0
    for kind, key, version, raw, _values in FILLED:
        original = decode(kind, key, version, raw)
        for at in range(0, len(raw), 3):
            changed = bytearray(raw)
            changed[at] ^= 0x01
            flips += 1
            try:
                other = decode(kind, key, version, bytes(changed))
            except OttlaError:
                continue
            present = kind == "r" and key in (68, 76, 89) and raw[at] == 1  # 0 and 1: "not null"
            assert other != original or present, (kind, key, version, at)
    assert flips > 5000


def test_bytes_cut_off_or_appended_are_refused():
    for kind, key, version, raw, _values in FILLED:
        for broken in {raw[:-1], raw[: len(raw) // 2], raw + b"\x00"} - {raw}:
            with pytest.raises(OttlaError):
                decode(kind, key, version, broken)


VERSIONED = [
    (name, int(version), bytes.fromhex(raw), json.loads(" ".join(rest)))
    for name, version, raw, *rest in lines("versioned.txt")
]


@pytest.mark.parametrize(("name", "version", "raw", "values"), VERSIONED)
def test_messages_outside_of_requests_are_the_jvms(name, version, raw, values):
    cls = getattr(transactions if name.startswith("TransactionLog") else groups, name)
    whole = version.to_bytes(2, "big") + raw
    message = codec.decode_versioned(cls, whole)
    assert only(values, plain(message)) == values
    assert codec.encode_versioned(build(cls, cls, values), version).hex() == whole.hex()
    for broken in (whole[:-1], whole + b"\x00", whole[:1], b"\x00\x63" + raw):
        with pytest.raises(OttlaError):
            codec.decode_versioned(cls, broken)


def test_a_newer_members_metadata_is_read_as_our_newest():
    cls = groups.ConsumerProtocolSubscription
    raw = codec.encode_versioned(cls(topics=["t"], rack_id="r"), 3)
    newer = b"\x00\x07" + raw[2:] + b"more"
    assert codec.decode_versioned(cls, newer, newer_ok=True).rack_id == "r"
    with pytest.raises(OttlaError):
        codec.decode_versioned(cls, newer)
    with pytest.raises(OttlaError):
        codec.decode_versioned(cls, newer[:-8], newer_ok=True)
