"""Values shown by Avro schema files; hostile ones are shown as they are, at once."""

import datetime as dt
import decimal
import io
import json
import re
import sys
import time
from html import unescape

import fastavro
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli import grammar as cli
from ottla.console import avro
from ottla.console.avro import Budget, NotDecodedError, Schemas, decoded, formed_value
from ottla.wire.avro import Schema, read_schema
from support.console import console_on

ORDER = {
    "type": "record", "name": "shop.Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": "string"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price",
         "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "share", "type": "double"},
    ],
}  # fmt: skip
AT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
LIST = {
    "type": "record", "name": "Link",
    "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Link"]}],
}  # fmt: skip
BILLION = b"\x80\xa8\xd6\xb9\x07"
"""1,000,000,000 as a long"""


def an_order(number=7, **more):
    return {
        "id": number, "who": "Åsa", "state": "PAID", "before": "NEW", "tags": {"a": [1, -2]},
        "at": AT, "price": decimal.Decimal("12.50"), "raw": b"\x00\xff", "share": float("nan"),
        **more,
    }  # fmt: skip


def encoded(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@pytest.fixture
def schema_of(tmp_path):
    def write(schema, name="some.avsc"):
        file = tmp_path / name
        file.write_text(json.dumps(schema))
        return read_schema(file)

    return write


def test_a_value_is_json_with_its_logical_types(schema_of):
    data, schema = encoded(ORDER, an_order()), schema_of(ORDER)
    text, note = decoded(data, schema, Budget())
    assert note == ""
    assert '"who": "Åsa"' in text
    assert '"at": "2026-01-31T12:00:00+00:00"' in text
    assert '"price": "12.50"' in text
    assert '"raw": "\\u0000ÿ"' in text, "bytes as in Avro's JSON encoding"
    assert '"share": NaN' in text
    assert '"before": "NEW"' in text
    framed = b"\0" + (77).to_bytes(4) + data
    assert decoded(framed, schema, Budget()) == (text, "Confluent's wire format, schema id 77")


def test_a_plain_datum_may_begin_with_a_zero(schema_of):
    data = encoded(ORDER, an_order(0))
    assert data[0] == 0
    text, note = decoded(data, schema_of(ORDER), Budget())
    assert '"id": 0' in text
    assert note == ""


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        (ORDER, b"", "is truncated"),
        (ORDER, encoded(ORDER, an_order())[:-1], "is truncated"),
        (ORDER, encoded(ORDER, an_order()) + b"x", "1 bytes remain after the value"),
        (ORDER, b"\0\0\0\0\1" + encoded(ORDER, an_order()) + b"x", "."),
        (ORDER, b"\0", "is truncated"),
        ("string", BILLION + b"abc", "is truncated"),
        ("bytes", b"\x01abc", "is truncated"),
        ("string", b"\x02\xff", "UnicodeDecodeError"),
        ("long", b"\xff" * 11, "longer than ten bytes"),
        (["null", "int"], b"\x04", "no branch of a union number 2"),
        (["null", "int"], b"\x01", "no branch of a union number -1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "no symbol"),
        ({"type": "array", "items": "null"}, BILLION + b"\0", "items"),
        ({"type": "array", "items": "null"}, b"\xff\xa7\xd6\xb9\x07\0\0", "items"),
        ({"type": "array", "items": "null"}, (b"\x80\x7d" * 6) + b"\0", "items"),
        ({"type": "map", "values": "null"}, BILLION, "items"),
        ({"type": "array", "items": "long"}, BILLION + b"\0" * 60_000, "items"),
        (LIST, b"\0\2" * 30_000 + b"\0\0", "nested deeper than 20"),
        (LIST, b"\0\2" * 20 + b"\0\0", "nested deeper than 20"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, b"", "deeper"),
        ("string", b"\x80\x80\x08" + b"x" * 65_536, "more than 64 KiB"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, b"\xd0\x0f" + b"\x7f" * 1000,
         "decimal of more than 256 bytes"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xff" * 9 + b"\x01", "Overflow"),
    ],
)  # fmt: skip
def test_what_is_no_value_of_the_schema_is_shown_as_it_is(schema_of, schema, data, why):
    parsed = schema_of(schema)
    began = time.process_time()
    with pytest.raises(NotDecodedError, match=why):
        decoded(data, parsed, Budget())
    found = formed_value(data, parsed, 2000, Budget())
    assert time.process_time() - began < 1
    assert found.form in ("text", "hex")
    assert found.note.startswith("not shown as Avro: ")
    assert len(found.note) < 200


def test_types_that_double_are_bounded_though_they_take_no_byte(schema_of):
    kind = {"type": "record", "name": "R0", "fields": [{"name": "n", "type": "null"}]}
    for depth in range(1, 19):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{depth - 1}"}]
        kind = {"type": "record", "name": f"R{depth}", "fields": fields}
    parsed, began = schema_of(kind), time.process_time()
    with pytest.raises(NotDecodedError, match="more than 20,000 items"):
        decoded(b"", parsed, Budget())
    assert time.process_time() - began < 1


def test_a_linked_list_that_is_short_is_decoded(schema_of):
    text, _ = decoded(b"\2\2" * 19 + b"\2\0", schema_of(LIST), Budget())
    assert text.count('"n": 1') == 20


def test_a_page_has_a_budget(schema_of):
    parsed, budget = schema_of({"type": "array", "items": "int"}), Budget()
    data = encoded({"type": "array", "items": "int"}, [1] * 15_000)
    notes = [formed_value(data, parsed, 2000, budget).note for _ in range(20)]
    assert sum("characters shown" in note for note in notes) == 6
    assert all("items" in note for note in notes[6:])
    assert budget.items >= 0
    refused = Budget()
    for _ in range(20):
        formed_value(BILLION + b"\0", schema_of({"type": "array", "items": "null"}), 99, refused)
    assert refused.items > avro.PAGE_ITEMS - 100, "what is only announced costs nothing"


def test_what_is_too_long_is_cut(schema_of):
    found = formed_value(encoded("string", "x" * 5000), schema_of("string"), 2000, Budget())
    assert (len(found.text), found.form) == (2000, "avro")
    assert found.note == "first 2,000 of 5,002 characters shown"
    assert formed_value(None, schema_of("string"), 2000, Budget()).form == "null"


ANY = {"type": "record", "name": "Any", "fields": [
    {"name": "a", "type": ["null", "string", {"type": "array", "items": "Any"}]},
    {"name": "b", "type": {"type": "map", "values": ["long", "bytes", "boolean", "float"]}},
]}  # fmt: skip
ANY_PARSED = Schema(fastavro.parse_schema(ANY, named_schemas=(named := {})), named)


@given(st.binary(max_size=200))
def test_any_bytes_are_shown(data):
    found = formed_value(data, ANY_PARSED, 500, Budget())
    assert len(found.text) <= 500 * 5 + 80
    assert found.form == "avro" or found.note


def any_record(inner):
    """Draw records of ANY; `inner` may stand in their field a."""
    return st.fixed_dictionaries(
        {
            "a": st.one_of(st.none(), st.text(max_size=20), inner),
            "b": st.dictionaries(
                st.text(max_size=5),
                st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=9)),
                max_size=3,
            ),
        }
    )


values = any_record(st.none())
for _ in range(avro.DEEPEST // 2 - 1):  # a list and a record each time; what is deeper is refused
    values = any_record(st.lists(values, max_size=2))


@given(values)
def test_what_fastavro_writes_is_decoded(value):
    data = encoded(ANY, value)
    text, note = decoded(data, ANY_PARSED, Budget(1 << 30))
    if note:  # both encodings fit, and the page says which one it took
        assert data[0] == 0
        return
    shown = json.loads(text)
    assert shown["a"] == value["a"] or isinstance(value["a"], list)
    assert shown["b"].keys() == value["b"].keys()


# --- the command ------------------------------------------------------------------------------


def run(*words):
    return cli.main(["console", *words, "-b", "127.0.0.1:9"])


def test_files_that_are_no_schema_are_one_line(tmp_path, capsys):
    (tmp_path / "broken.avsc").write_text("{")
    (tmp_path / "other.avsc").write_text('{"type": "array"}')
    (tmp_path / "deep.avsc").write_text("[" * 100_000)
    (tmp_path / "bytes.avsc").write_bytes(b"\xff\xfe")
    for name, said in (
        ("missing.avsc", "No such file or directory"),
        (".", "Is a directory"),
        ("broken.avsc", "not an Avro schema: JSONDecodeError"),
        ("other.avsc", "not an Avro schema: "),
        ("deep.avsc", "not an Avro schema: RecursionError"),
        ("bytes.avsc", "not an Avro schema: UnicodeDecodeError"),
    ):
        for word in (f"{tmp_path / name}", f"orders={tmp_path / name}"):
            assert run("--avro-schema", word) == 1
            lines = capsys.readouterr().err.splitlines()
            assert len(lines) == 1
            assert lines[0].startswith(f"ottla: {tmp_path / name}: {said}".replace("/.:", ":"))


def test_a_topic_has_one_schema(tmp_path, capsys):
    for first, second, of in (("a", "b", "all topics"), ("t=a", "t=b", "t")):
        assert run("--avro-schema", first, "--avro-schema", second) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"ottla console: --avro-schema {second}: {of} already has a schema")
        assert said.count("\n") == 1


def test_files_are_of_a_topic_or_of_all_others(tmp_path, monkeypatch):
    given = []

    async def serve(*arguments):
        given.append(arguments[-1])

    monkeypatch.setattr("ottla.console.server.serve", serve)
    monkeypatch.chdir(tmp_path)
    for name, kind in (("own.avsc", "int"), ("all.avsc", "long"), ("t=x.avsc", "string")):
        (tmp_path / name).write_text(json.dumps(kind))
    assert not run("--avro-schema", "own.topic=own.avsc", "--avro-schema", "all.avsc")
    (schemas,) = given
    assert schemas.of("own.topic").parsed == "int"
    assert schemas.usual_form("own.topic") == "avro"
    assert schemas.of("any").parsed == "long"
    assert schemas.usual_form("any") == "auto"
    assert schemas.forms("any")[-1] == "avro"
    assert not run("--avro-schema", "./t=x.avsc")
    assert given[1].of("any").parsed == "string"
    assert not run()
    assert given[2].forms("any") == ("auto", "json", "text", "hex")


def test_without_fastavro_it_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fastavro", None)
    (tmp_path / "a.avsc").write_text('"string"')
    assert run("--avro-schema", tmp_path / "a.avsc") == 1
    assert capsys.readouterr().err == (
        "ottla: --avro-schema needs fastavro, not installed here: pip install 'ottla[console]'\n"
    )


def test_fastavro_is_imported_where_a_schema_is_read(tmp_path):
    import subprocess

    code = "import ottla.console.application, sys; print('fastavro' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"


# --- pages ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("schemas")
    for topic in ("avro-own", "avro-other"):
        cluster.create_topic(topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for topic in ("avro-own", "avro-other"):
        producer.produce(topic, encoded(ORDER, an_order()), "key")
        producer.produce(topic, b"\0\0\0\0\x09" + encoded(ORDER, an_order(8)), "key")
        producer.produce(topic, b"<script>alert(1)</script>", "key")
        producer.produce(topic, None, "key")
    assert producer.flush(30) == 0
    (folder / "order.avsc").write_text(json.dumps(ORDER))
    own = {"avro-own": read_schema(folder / "order.avsc")}
    with console_on(cluster.bootstrap, schemas=Schemas(own)) as http:
        yield http


def forms(text):
    return re.findall(r"<option( selected)?>(\w+)</option>", text.partition('name="as"')[2])[:5]


def test_a_topic_with_a_schema_of_its_own_is_shown_by_it(browser):
    text = browser.get("/messages?topic=avro-own&from=beginning").text
    assert forms(text)[4] == (" selected", "avro")
    assert unescape(text).count('"who": "Åsa"') == 2
    assert "schema id 9" in text
    assert "<script>alert" not in text
    assert "not shown as Avro: " in text
    assert "<em>null</em>" in text
    link = unescape(re.search(r'href="(/message\?[^"]+)"', text)[1])
    assert "as=avro" in link
    whole = unescape(browser.get(link).text)
    assert '"who": "Åsa"' in whole
    assert "<strong>avro</strong>" in whole
    plain = browser.get("/messages?topic=avro-own&from=beginning&as=auto").text
    assert forms(plain)[0] == (" selected", "auto")
    assert '"who"' not in unescape(plain)
    live = browser.get("/messages?topic=avro-own&live=1").text
    assert unescape(live).count('"who": "Åsa"') == 2


def test_a_topic_without_a_schema_has_no_such_form(browser):
    text = browser.get("/messages?topic=avro-other&from=beginning").text
    assert "avro" not in dict.fromkeys(name for _, name in forms(text)[:4])
    assert forms(text)[0] == (" selected", "auto")
    response = browser.get("/messages?topic=avro-other&as=avro")
    assert response.status_code == 400
    assert "as: must be one of auto, json, text, hex" in response.text
    assert browser.get("/message?topic=avro-other&offset=0&as=avro").status_code == 400


def test_a_schema_of_all_topics_is_offered_and_not_chosen(browser):
    console = browser.console
    before, console.schemas = console.schemas, Schemas(None, console.schemas.of("avro-own"))
    try:
        text = browser.get("/messages?topic=avro-other&from=beginning").text
        assert forms(text)[0] == (" selected", "auto")
        assert '"who"' not in unescape(text)
        text = browser.get("/messages?topic=avro-other&from=beginning&as=avro").text
        assert unescape(text).count('"who": "Åsa"') == 2
    finally:
        console.schemas = before
