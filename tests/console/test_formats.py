"""How bytes are shown, and the fields of a request: bounded whatever they are."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.asked import Asked, BadRequestError
from ottla.console.diagnosing import Diagnosing
from ottla.console.formats import FORMS, formed
from ottla.console.pages.overview import shortened
from ottla.console.rendering import block, environment, paged, path, size


def test_forms():
    assert formed(None, "auto", 100) == ("null", "null", 0, 0, "")
    assert formed(b"", "auto", 100) == ("", "text", 0, 0, "")
    assert formed(b'{"a":[1,2]}', "auto", 100).text == '{\n  "a": [\n    1,\n    2\n  ]\n}'
    assert formed(b'{"a":[1,2]}', "auto", 100).form == "json"
    assert formed(b'{"a":1', "auto", 100).form == "text"
    assert formed(b"12", "auto", 100).form == "text", "a number alone is set out as it is"
    assert formed("naïve".encode(), "auto", 100).text == "naïve"
    assert formed(b"\xff\x00a", "auto", 100).text == f"00000000  {'ff 00 61':<47}  ..a"
    assert formed(b"\xff\x00a", "text", 100).text == "\\xff\x00a"
    assert formed(b"ab", "hex", 100).form == "hex"
    assert formed(b"\xff", "json", 100).form == "text"


def test_what_is_too_long_is_cut_and_counted():
    found = formed(b"x" * 1_048_576, "auto", 2000)
    assert (len(found.text), found.form, found.size, found.cut) == (
        2000,
        "text",
        1_048_576,
        1_046_576,
    )
    assert formed("é".encode() * 1000, "auto", 99).form == "text", "a character that is cut is text"
    assert formed(b"\xff" * 1000, "auto", 400).cut == 920
    assert formed(b"{" + b" " * 5000 + b"}", "auto", 2000).text == "{}"


@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * 60_000,
        b"[" * 30_000 + b"]" * 30_000,
        b"[" * 1000 + b"0," * 20_000,
        b'{"a":' * 10_000,
        b"[" + b"0," * 30_000 + b"0]",
        b"[" * 19 + b",".join([b"[0]"] * 15_000) + b"]" * 19,
        b"[1e999999999]",
        b"[" + b"9" * 60_000 + b"]",
    ],
)
def test_json_that_would_become_large_is_bounded(bomb):
    began = time.process_time()
    for most in (2000, 4_194_304):
        for form in FORMS:
            assert len(formed(bomb, form, most).text) <= most
    assert time.process_time() - began < 2


@given(st.one_of(st.none(), st.binary(max_size=300)), st.sampled_from(FORMS), st.integers(4, 400))
def test_any_bytes_have_a_form(data, form, most):
    found = formed(data, form, most)
    assert found.size == len(data or b"")
    assert 0 <= found.cut <= found.size
    assert len(found.text) <= 80 + most * 5, "a byte that is no text takes four"
    str(block(found.text)).encode()


def test_blocks_are_escaped_and_keep_their_lines():
    assert str(block("<b>\x1b[1m\n\t'\"&\u202e")) == "&lt;b&gt;\\x1b[1m\n\t&#39;&#34;&amp;\\u202e"


def test_fields_have_bounds():
    asked = Asked([("a", "1"), ("a", "2"), ("empty", ""), ("long", "x" * 2000), ("n", "-5")])
    assert asked.text("a") == "2"
    assert asked.numbers("a", 2) == [1, 2]
    assert asked.number("empty", 7) == 7
    assert asked.number("missing", 7) == 7
    assert asked.number("n", 0, -9, 9) == -5
    for wrong in (
        lambda: asked.text("long"),
        lambda: asked.needed("empty"),
        lambda: asked.number("n", 0),
        lambda: asked.number("long", 0),
        lambda: Asked([("x", "1e5")]).number("x", 0),
        lambda: Asked([("x", "٣")]).number("x", 0),
        lambda: Asked([("x", "9" * 30)]).number("x", 0),
        lambda: asked.numbers("a", 1),
        lambda: asked.choice("a", ("1",), "1"),
    ):
        with pytest.raises(BadRequestError):
            wrong()


def test_parts_of_a_list():
    rows = list(range(250))
    assert paged(rows, 1, 100)[1] == (1, 3, 1, 100, 250)
    assert list(paged(rows, 99, 100)[0]) == rows[200:]
    assert paged([], 1, 100)[1] == (1, 1, 0, 0, 0)


def test_urls_and_sizes():
    assert path("topic", name="a/b?&<") == "/topic?name=a%2Fb%3F%26%3C"
    assert path("x", a=None, b="", c="\udcff") == "/x?c=%3F"
    assert [size(n) for n in (None, -1, 0, 1023, 1024, 1 << 50)] == [
        "-", "-", "0 B", "1,023 B", "1.0 KiB", "1.0 PiB",
    ]  # fmt: skip


def test_every_template_compiles_and_escapes():
    made_by = environment()
    assert made_by.autoescape is True
    for name in made_by.list_templates():
        made_by.get_template(name)
        source = made_by.loader.get_source(made_by, name)[0]
        assert "|safe" not in source.replace(" ", ""), name
        assert "autoescape" not in source, name
    text = made_by.from_string("{{ a }}|{{ b }}|{{ c }}|{{ d }}|{{ e }}")
    shown = text.render(a="<\x1b\u2028>", b=None, c=True, d=1.25, e=0)
    assert shown == "&lt;\\x1b\\u2028&gt;|-|yes|1.2|0"


def test_findings_about_something_else_are_not_fresh(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("ottla.console.diagnosing.time.monotonic", lambda: now[0])

    async def run():
        asked = []
        diagnosing = Diagnosing(None)

        async def ask():
            asked.append(now[0])
            diagnosing._ended_s = now[0]

        diagnosing._ask = ask

        async def begin(at_s, about, **more):
            now[0] = at_s
            diagnosing.begin(about=about, **more)
            await asyncio.sleep(0)

        for at_s, about in ((0, "a"), (10, "a"), (20, "b"), (24, "c"), (26, "c"), (90, "c")):
            await begin(1000.0 + at_s, about)
        await begin(1091.0, "c", again=True)
        return [at_s - 1000 for at_s in asked]

    assert asyncio.run(run()) == [0, 20, 26, 90, 91]


def test_a_broker_that_dies_is_not_lost_among_its_partitions():
    lines = [f"12:00:02  t-{n}: in sync 1,2 → 1" for n in range(60)]
    lines += ["12:00:02  controller 2 → 1", "12:00:02  broker 2 is gone", "12:00:01  t-0 is gone"]
    assert shortened(lines) == [
        *lines[:5], "12:00:02  controller 2 → 1", "12:00:02  broker 2 is gone",
        "12:00:02  and 55 more changes of partitions", "12:00:01  t-0 is gone",
    ]  # fmt: skip
