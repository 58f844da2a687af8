"""Fuzz targets below the broker: messages, record batches, compressed bytes, files.

Each takes bytes and raises `Finding` (or whatever the product raises that it must not). The first
byte says what the rest is, so that one corpus serves a whole target.
"""

import functools
import struct
import time
import tracemalloc

from fuzz_broker import Finding

from ottla.coordinators import group_records, transaction_records
from ottla.log import checkpoints
from ottla.log.validate import ValidationRules, check_follower_batches, check_leader_batch
from ottla.model import properties
from ottla.model.config import default_topic_config
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.security.principal_mapping import PrincipalMapping
from ottla.security.sasl import jaas, jwt_tokens
from ottla.security.sasl.digest_md5 import DigestMd5Server
from ottla.security.sasl.oauthbearer import OAuthBearerServer
from ottla.security.sasl.scram import ScramLookup, ScramMechanism, ScramServer
from ottla.wire import codec, compression, records
from ottla.wire.headers import decode_request_header
from ottla.wire.messages import groups, transactions
from support.batches import validate_batch

REQUEST, RESPONSE, VERSIONED = range(3)
VERSIONED_CLASSES = (
    groups.OffsetCommitKey,
    groups.OffsetCommitValue,
    groups.GroupMetadataKey,
    groups.GroupMetadataValue,
    transactions.TransactionLogKey,
    transactions.TransactionLogValue,
    groups.ConsumerProtocolSubscription,
    groups.ConsumerProtocolAssignment,
)
SPENT_S = 1.0


def measured(work, size):
    """Run `work`; Finding if it took unreasonably long for so many bytes."""
    began_s = time.process_time()
    try:
        return work()
    finally:
        spent_s = time.process_time() - began_s
        if spent_s > SPENT_S:
            raise Finding(f"{spent_s:.1f} s of processor time for {size} bytes")


class Target:
    """Bytes in, `Finding` out; stateless, so there is nothing to close."""

    topic_ids = ()

    def close(self):
        pass


class MessageTarget(Target):
    """A request frame, a response's key, version and body, or a record's key or value."""

    name = "messages"

    def check(self, data):
        if not data:
            return
        kind, raw = data[0] % 3, bytes(data[1:])
        measured(lambda: (self._request, self._response, self._versioned)[kind](raw), len(raw))

    def _request(self, raw):
        try:
            header, pos = decode_request_header(memoryview(raw))
            key, version = header.api_key, header.api_version
            message = codec.decode_request(key, version, raw, pos, rest_ok=True)
        except OttlaError:
            return
        self._same_in_slices(key, version, raw, pos, message)
        _round_trip(
            message,
            lambda m: codec.encode_request(m, version),
            lambda b: codec.decode_request(key, version, b),
        )

    @staticmethod
    def _same_in_slices(key, version, raw, pos, message):
        steps = codec.decode_request_in_slices(key, version, memoryview(raw), pos, rest_ok=True)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            if _plain(end.value) != _plain(message):
                raise Finding(f"{key} v{version} read in slices is another message") from None

    def _response(self, raw):
        if len(raw) < 4:
            return
        key, version = struct.unpack_from(">hh", raw)
        try:
            message = codec.decode_response(key, version, raw, 4)
        except OttlaError:
            return
        _round_trip(
            message,
            lambda m: codec.encode_response(m, version),
            lambda b: codec.decode_response(key, version, b),
        )

    def _versioned(self, raw):
        if len(raw) < 3:
            return
        cls = VERSIONED_CLASSES[raw[0] % len(VERSIONED_CLASSES)]
        try:
            message = codec.decode_versioned(cls, raw[1:])
        except OttlaError:
            return
        (version,) = struct.unpack_from(">h", raw, 1)
        _round_trip(
            message,
            lambda m: [codec.encode_versioned(m, version)],
            lambda b: codec.decode_versioned(cls, b),
        )


def _round_trip(message, encode, decode):
    """What was read can be written, and is then read as the same.

    Not the same bytes: tagged fields nobody knows, and varints longer than need be, are dropped.
    """
    raw = b"".join(encode(message))
    again = decode(raw)
    # repr, because NaN is not itself; memoryviews of `records` are compared by what they hold.
    if _plain(again) != _plain(message):
        raise Finding(f"{message} comes back as {again}")
    if b"".join(encode(again)) != raw:
        raise Finding(f"{message} is written in two ways")


def _plain(value):
    if hasattr(value, "__struct_fields__"):
        return [type(value).__name__, *(_plain(getattr(value, f)) for f in value.__struct_fields__)]
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return bytes(value) if isinstance(value, memoryview) else repr(value)


RULES = tuple(
    ValidationRules(default_topic_config(**settings))
    for settings in (
        {},
        {"cleanup_policy": "compact"},
        {"compression_type": "zstd"},
        {"message_timestamp_type": "LogAppendTime"},
        {"compression_type": "uncompressed", "message_timestamp_after_max_ms": "1000"},
    )
)
NOW_MS = 1_767_225_600_000


class BatchTarget(Target):
    """The rules' number, then the bytes of a Produce request's or a Fetch response's records.

    What a leader takes must be readable to the last record, and be taken by a follower.
    """

    name = "batches"

    def check(self, data):
        if data:
            rules = RULES[data[0] % len(RULES)]
            measured(lambda: self._check(bytes(data[1:]), rules), len(data))

    def _check(self, raw, rules):
        self._fetched(raw)
        try:
            batch, header = check_leader_batch(memoryview(bytearray(raw)), rules, "client", NOW_MS)
        except OttlaError:
            return
        try:
            found = list(records.iter_records(batch))
            validate_batch(batch, 0, records.parse_batch_header(batch))
            taken = check_follower_batches(memoryview(batch))
        except OttlaError as error:
            raise Finding(f"a leader takes what nobody can read: {error!r}") from error
        if [record.offset for record in found] != list(range(header[-1])) or len(taken) != 1:
            raise Finding(f"a leader takes offsets {[r.offset for r in found][:9]} of {header}")

    @staticmethod
    def _fetched(raw):
        """Read as a follower and as a consumer would."""
        try:
            places = check_follower_batches(memoryview(raw))
        except OttlaError:
            places = []
        for position, _ in places:
            try:
                for record in records.iter_records(raw, position, max_size=1 << 22):
                    records.parse_control_record(record)
            except OttlaError:
                continue


class CompressionTarget(Target):
    """A codec's number, then what claims to be its output; a cap of a mebibyte holds."""

    name = "compression"
    CAP = 1 << 20

    def check(self, data):
        if not data:
            return
        kind, raw = 1 + data[0] % 4, bytes(data[1:])
        tracemalloc.start()
        try:
            measured(lambda: self._check(kind, raw), len(raw))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # The cap twice (parts and what is made of them), one block of lz4 beyond it.
        if peak > 2 * self.CAP + (5 << 20) + 4 * len(raw):
            raise Finding(f"{peak} bytes for {len(raw)} with a cap of {self.CAP}")

    def _check(self, kind, raw):
        try:
            whole = compression.decompress(kind, raw, self.CAP)
        except OttlaError:
            return
        if len(whole) > self.CAP:
            raise Finding(f"codec {kind}: {len(whole)} bytes above the cap")
        again = compression.decompress(kind, compression.compress(kind, whole), self.CAP)
        if bytes(again) != bytes(whole):
            raise Finding(f"codec {kind}: what came out does not come back")


class FileTarget(Target):
    """A kind of file or record, then its bytes: small things a broker reads when it starts."""

    name = "files"

    def check(self, data):
        if data:
            measured(lambda: self._check(data[0] % 7, bytes(data[1:])), len(data))

    def _check(self, kind, raw):
        try:
            self._read(kind, raw)
        except (OttlaError, checkpoints.CheckpointError):
            return

    @staticmethod
    def _read(kind, raw):
        if kind == 0:
            offsets = checkpoints.decode_offsets(raw)
            if checkpoints.decode_offsets(checkpoints.encode_offsets(offsets)) != offsets:
                raise Finding(f"offsets come back otherwise: {offsets}")
        elif kind == 1:
            epochs = checkpoints.decode_epochs(raw)
            if checkpoints.decode_epochs(checkpoints.encode_epochs(epochs)) != epochs:
                raise Finding(f"epochs come back otherwise: {epochs}")
        elif kind == 2:
            checkpoints.decode_partition_metadata(raw)
        elif kind == 3:
            checkpoints.decode_meta_properties(raw)
        elif kind == 6:
            key = transaction_records.transaction_key("t")
            load_records(transaction_records.TransactionRecordReader({}), key, raw)
        else:
            key = group_records.group_key("g")
            if kind == 5:
                key = group_records.offset_key("g", TopicPartition("t", 0))
            reader = group_records.GroupRecordReader(lambda _: None, NOW_MS)
            load_records(reader, key, raw)


def load_records(reader, key, raw):
    batch = records.build_batch([records.Record(timestamp=0, key=key, value=raw)])
    header = records.parse_batch_header(batch)
    list(reader.load_batch(header, records.iter_records(batch)))
    list(reader.finish())


KEY_SET = 7


class TextTarget(Target):
    """A parser's number, then its text: settings, and what is read before anyone authenticated."""

    name = "texts"
    KINDS = 8

    def check(self, data):
        if data:
            kind, raw = data[0] % self.KINDS, bytes(data[1:])
            measured(lambda: self._check(kind, raw), len(raw))

    def _check(self, kind, raw):
        try:
            self._read(kind, raw)
        except OttlaError:
            return
        except ValueError:
            if kind != KEY_SET:
                raise

    @staticmethod
    def _read(kind, raw):
        text = raw.decode("utf-8", "replace")
        expected = jwt_tokens.Expected()
        if kind == 0:
            settings = properties.load_properties(raw)
            if properties.load_properties(properties.as_properties(settings).encode()) != settings:
                raise Finding(f"settings come back otherwise: {settings}")
        elif kind == 1:
            jaas.parse_jaas_file("file", text)
        elif kind == 2:
            PrincipalMapping(text).name("CN=a,OU=b")
        elif kind == 3:
            lookup = ScramLookup(lambda *_: None, lambda *_: None, b"secret")
            ScramServer(ScramMechanism.SCRAM_SHA_256, lookup, "nonce").respond(raw, NOW_MS)
        elif kind == 4:
            check = functools.partial(jwt_tokens.validate_unsigned, expected=expected)
            OAuthBearerServer(check).respond(raw, NOW_MS)
        elif kind == 5:
            DigestMd5Server({"a": "b"}, "c").respond(raw)
        elif kind == 6:
            jwt_tokens.validate_unsigned(text, NOW_MS, expected)
        else:
            keys = jwt_tokens.Keys(raw)
            jwt_tokens.validate_signed("eyJhbGciOiJSUzI1NiJ9.e30.AA", NOW_MS, keys, expected)
