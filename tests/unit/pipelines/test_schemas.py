"""Values in a registry's wire format: by their libraries, each error; a registry that is down."""

import base64
import datetime as dt
import decimal
import io
import json
import pickle
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("jsonschema")
pytest.importorskip("pyarrow")

import fastavro
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ConfigError, ConnectionLostError
from ottla.pipelines.schemas import RegistryDecoder
from ottla.pipelines.schemas.columns import as_arrow
from ottla.pipelines.schemas.decoding import message_indexes
from ottla.pipelines.schemas.registry import MAX_RESPONSE_BYTES, RegistrySettings
from ottla.wire.avro import MOST_DECIMAL_BYTES
from support.messages import message


class Server:
    """A registry as a dict of paths; counts what it is asked."""

    def __init__(self):
        self.paths, self.asked, self.wants = {}, [], None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                found = outer.paths.get(self.path.partition("?")[0])
                status = 200 if found is not None else 404
                if outer.wants and self.headers.get("Authorization") != outer.wants:
                    status, found = 401, {"error_code": 401, "message": "who are you"}
                if isinstance(found, int):
                    status, found = found, None
                body = found or {"error_code": 40403, "message": "Schema not found"}
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, schema_id, text, kind=None, **more):
        text = text if isinstance(text, str) else json.dumps(text)
        found = {"schema": text, **({"schemaType": kind} if kind else {}), **more}
        self.paths[f"/schemas/ids/{schema_id}"] = found
        return found


@pytest.fixture
def server():
    found = Server()
    yield found
    found.server.shutdown()
    found.server.server_close()


def decoder(server, **more):
    return RegistryDecoder({"schema.registry.url": server.url, **more})


def framed(schema_id, payload):
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


EVENT = {
    "type": "record", "name": "Event", "fields": [
        {"name": "n", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                  "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip
AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
ROW = {"n": 5, "who": None, "at": AT, "cost": decimal.Decimal("1.25"),
       "id": "12345678-1234-5678-1234-567812345678"}  # fmt: skip


def test_avro_values_and_each_error_by_itself(server):
    server.add(7, EVENT)
    good = framed(7, avro(EVENT, ROW))
    found = decoder(server).decode(
        [good, None, good[:-3], good + b"x", b"", b"\1\0\0\0\7", framed(8, b"x"), good]
    )
    assert found.rows == [ROW, None, None, None, None, None, None, ROW]
    assert found.errors[:2] == [None, None]
    assert found.errors[7] is None
    assert "not of its Avro schema" in found.errors[2]
    assert found.errors[3] == "1 bytes after the Avro value"
    assert "no byte 0 with a schema's id" in found.errors[4]
    assert "no byte 0 with a schema's id" in found.errors[5]
    assert "Schema not found" in found.errors[6]
    assert found.failed == 5
    assert len(server.asked) == 2  # once for each id


def test_avro_values_that_could_take_any_time_are_not_decoded(server):
    """A billion nulls take ten bytes; a decimal's time grows with the square of its size."""
    server.add(1, {"type": "array", "items": "null"})
    server.add(2, {"type": "bytes", "logicalType": "decimal", "precision": 4000, "scale": 0})
    nulls = b"\x80\xa8\xd6\xb9\x07\0"  # a block of 1,000,000,000 items
    large = b"\x80\x80\x01" + b"\1" * 8192
    began = time.process_time()
    found = decoder(server).decode([framed(1, nulls), framed(2, large), framed(2, b"\2\5")])
    assert time.process_time() - began < 5
    assert "its values have no bound" in found.errors[0]
    assert f"a decimal of more than {MOST_DECIMAL_BYTES} bytes" in found.errors[1]
    assert found.rows == [None, None, 5]


def test_an_array_of_arrow_comes_from_rows(server):
    server.add(7, EVENT)
    rows = decoder(server).decode([framed(7, avro(EVENT, ROW)), None]).rows
    wanted = pa.struct([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")),
                        ("cost", pa.decimal128(9, 2)), ("more", pa.string())])  # fmt: skip
    array, errors = as_arrow(rows, wanted)
    assert errors == [None, None]
    assert array.to_pylist() == [
        {"n": 5, "at": AT, "cost": decimal.Decimal("1.25"), "more": None}, None,
    ]  # fmt: skip
    array, errors = as_arrow([{"n": 1}, {"n": "five"}, {"n": 2}], pa.struct([("n", pa.int64())]))
    assert array.to_pylist() == [{"n": 1}, None, {"n": 2}]
    assert "does not fit" in errors[1]


def test_references_are_asked_for_and_known_to_each_kind(server):
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}
    outer = {"type": "record", "name": "Out", "fields": [{"name": "i", "type": "In"}]}
    server.paths["/subjects/in%2F1/versions/3"] = {"schema": json.dumps(inner)}
    server.add(1, outer, references=[{"name": "In", "subject": "in/1", "version": 3}])
    whole = {**outer, "fields": [{"name": "i", "type": inner}]}
    assert decoder(server).decode([framed(1, avro(whole, {"i": {"x": 4}}))]).rows == [
        {"i": {"x": 4}}
    ]
    server.paths["/subjects/part/versions/1"] = {"schema": '{"type":"integer"}'}
    server.add(2, {"type": "object", "properties": {"n": {"$ref": "part.json"}}}, "JSON",
               references=[{"name": "part.json", "subject": "part", "version": 1}])  # fmt: skip
    found = decoder(server).decode([framed(2, b'{"n":1}'), framed(2, b'{"n":"1"}')])
    assert found.rows[0] == {"n": 1}
    assert found.errors[1] == "not of its JSON Schema: $.n: '1' is not of type 'integer'"


def test_json_values(server):
    server.add(1, {"type": "object", "required": ["a"]}, "JSON")
    found = decoder(server).decode([framed(1, b'{"a":[1,null]}'), framed(1, b"{}"),
                                    framed(1, b"{"), framed(1, b"\xff")])  # fmt: skip
    assert found.rows[0] == {"a": [1, None]}
    assert "'a' is a required property" in found.errors[1]
    assert found.failed == 3
    assert all("\n" not in error for error in found.errors if error)


def serialized(kind):
    file = FileDescriptorProto()
    kind.DESCRIPTOR.file.CopyToProto(file)
    return base64.b64encode(file.SerializeToString()).decode()


def test_protobuf_values_have_types_of_their_own(server):
    kind = message("Click", n="int64", who="string?", tags="string[]", raw="bytes", ok="bool")
    server.add(3, serialized(kind), "PROTOBUF")
    payload = kind(n=1 << 60, tags=["a", "b"], raw=b"\0").SerializeToString()
    found = decoder(server).decode(
        [framed(3, b"\0" + payload), framed(3, b"\2\0" + payload), framed(3, b"\2\2" + payload),
         framed(3, b"\0\xff"), framed(3, b""), framed(3, b"\x80\x80\x80\x80\x80\x80")]
    )  # fmt: skip
    row = {"n": 1 << 60, "who": None, "tags": ["a", "b"], "raw": b"\0", "ok": False}
    assert found.rows[:2] == [row, row]
    assert "has no message [1]" in found.errors[2]
    assert "not of its Protobuf schema" in found.errors[3]
    assert "cut off" in found.errors[4]
    assert "cut off" in found.errors[5]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=5), st.binary(max_size=4))
def test_message_indexes_are_confluents(indexes, rest):
    def varint(n):
        n, out = n << 1, b""
        while n > 0x7F:
            out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
        return out + bytes([n])

    data = varint(len(indexes)) + b"".join(map(varint, indexes))
    assert message_indexes(memoryview(data + rest)) == (tuple(indexes), len(data))
    assert message_indexes(memoryview(b"\0" + rest)) == ((0,), 1)


def test_schemas_that_are_none_are_errors_of_their_records(server):
    server.add(1, "{")
    server.add(2, {"type": "nothing"}, "JSON")
    server.add(3, "message M {}", "PROTOBUF")
    server.add(4, "x", "XML")
    found = decoder(server).decode([framed(n, b"x") for n in (1, 2, 3, 4)])
    signs = ("Avro schema", "JSON Schema", ".proto file", "type XML")
    assert all(sign in error for sign, error in zip(signs, found.errors, strict=True))


def test_a_registry_that_cannot_be_asked_is_no_error_of_a_record(server):
    server.add(1, EVENT)
    value = framed(1, avro(EVENT, ROW))
    gone = RegistryDecoder({"schema.registry.url": "http://127.0.0.1:1"})
    with pytest.raises(ConnectionLostError, match="does not respond"):
        gone.decode([value])
    both = {"schema.registry.url": f"http://127.0.0.1:1, {server.url}/"}
    assert RegistryDecoder(both).decode([value]).rows == [ROW]
    server.paths["/schemas/ids/1"] = 503
    with pytest.raises(ConnectionLostError, match="responds with 503"):
        decoder(server).decode([value])
    server.paths["/schemas/ids/1"] = b" " * (MAX_RESPONSE_BYTES + 1)
    with pytest.raises(ConnectionLostError, match="a response of more than"):
        decoder(server).decode([value])


def test_basic_auth_and_pickling_keep_settings_and_show_no_password(server):
    server.add(1, EVENT)
    server.wants = "Basic " + base64.b64encode(b"me:pa:ss").decode()
    value = framed(1, avro(EVENT, ROW))
    one = decoder(server, **{"basic.auth.user.info": "me:pa:ss"})
    assert one.decode([value]).rows == [ROW]
    assert pickle.loads(pickle.dumps(one)).decode([value]).rows == [ROW]
    assert "pa:ss" not in repr(one.settings)
    with pytest.raises(ConfigError, match="refuses access: who are you"):
        decoder(server).decode([value])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "write http://host:port"),
        ({"schema.registry.url": "host:8081"}, "write http://host:port"),
        ({"schema.registry.url": "file:///etc/passwd"}, "write http://host:port"),
        ({"schema.registry.url": "http://h", "basic.auth.user.info": "me"}, "user:password"),
        ({"schema.registry.url": "http://h", "schema.registry.timeout.ms": "0"}, "milliseconds"),
        ({"schema.registry.url": "http://h", "schema.registry.ssl": "x"}, "is not a setting of"),
    ],
)
def test_settings_that_are_wrong_are_one_line(settings, says):
    with pytest.raises(ConfigError) as found:
        RegistrySettings.of(settings)
    assert says in str(found.value)
    assert "\n" not in str(found.value)
