"""The schema language, the table of APIs beside it, and the stubs made from it."""

import pickle
import re
import sys
import types
from importlib import import_module

import pytest

from ottla.wire import codec, messages, stubs
from ottla.wire.apis import APIS
from ottla.wire.schema import Message, load, made_at_first_use, parse, parse_versions

SMALL = """
ThingRequest (key 99, versions 0-3, flexible 2+) =
    name:string?1+ count:int32@1+=0x10~
    parts:[]Part@2+
Part = id:uuid flag:bool=true text:string@2+?#0=null
"""


def test_a_schema_says_fields_versions_and_defaults():
    (message,) = parse(SMALL)
    name, count, parts = message.fields
    assert (message.key, message.versions, message.flexible) == (99, (0, 3), 2)
    assert name.nullable == (1, 32767)
    assert not name.ignorable
    assert (count.versions, count.default, count.ignorable) == ((1, 32767), 16, True)
    assert parts.array
    assert [field.name for field in parts.struct.fields] == ["id", "flag", "text"]
    assert (parts.struct.fields[2].tag, parts.struct.fields[2].nullable) == (0, (2, 32767))


def test_classes_are_made_with_their_structs_as_attributes():
    (thing,) = load(SMALL, __name__)
    assert issubclass(thing, Message)
    assert thing.Part().flag is True
    assert thing(name="a", parts=[thing.Part(flag=False)]).parts[0].flag is False


@pytest.mark.parametrize(
    ("text", "versions"), [("3", (3, 3)), ("3+", (3, 32767)), ("3-7", (3, 7)), ("0", (0, 0))]
)
def test_version_ranges(text, versions):
    assert parse_versions(text) == versions


@pytest.mark.parametrize("key", sorted(APIS))
def test_the_table_of_apis_says_what_the_schemas_say(key):
    spec = APIS[key]
    for cls in (codec.request_class(key), codec.response_class(key)):
        assert key == cls.API_KEY
        assert (spec.min_version, spec.max_version) == (cls.MIN_VERSION, cls.MAX_VERSION)
        assert spec.flexible_version == cls.FLEXIBLE_VERSION
    names = codec.request_class(key).__name__, codec.response_class(key).__name__
    assert names == (f"{spec.name}Request", f"{spec.name}Response")


def test_every_version_of_every_message_compiles():
    for key, spec in APIS.items():
        for version in range(spec.min_version, spec.max_version + 1):
            for functions in (
                codec.request_readers,
                codec.request_writers,
                codec.response_readers,
                codec.response_writers,
            ):
                assert callable(functions[key, version])


@pytest.mark.parametrize("module", stubs.message_modules())
def test_the_stub_beside_a_message_module_is_current(module):
    path = stubs.stub_path(module)
    assert path.read_text(encoding="utf-8") == stubs.stub_text(module), (
        "run: python -m ottla.wire.stubs"
    )


def test_a_message_is_made_when_it_is_first_asked_for(monkeypatch):
    one = types.ModuleType("one")
    monkeypatch.setitem(sys.modules, "one", one)
    one.__getattr__ = made_at_first_use(
        f"# A thing.\n{SMALL}\nOther (key -1, versions 0-0) = a:int8", "one"
    )
    assert "ThingRequest" not in vars(one)
    assert one.ThingRequest is one.ThingRequest
    assert one.ThingRequest(parts=[one.ThingRequest.Part()]).API_KEY == 99
    assert "Other" not in vars(one)
    assert pickle.loads(pickle.dumps(one.Other(a=5))).a == 5
    with pytest.raises(AttributeError, match="module 'one' has no attribute 'Part'"):
        _ = one.Part


def test_the_module_of_each_message_up_to_0_1_is_still_a_path_to_it():
    for spec in APIS.values():
        module = re.sub(r"(?<!^)([A-Z])", r"_\1", spec.name).lower()
        if module in messages.MODULES_UP_TO_0_1.split():
            found = import_module(f"ottla.wire.messages.{module}")
            assert getattr(found, f"{spec.name}Request") is codec.request_class(spec.key)
    with pytest.raises(AttributeError, match=r"messages\.fetch"):
        _ = import_module("ottla.wire.messages.fetch").NoSuchRequest
