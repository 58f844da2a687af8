"""The registry's REST API over a topic in memory: codes, versions, ids, levels, modes.

Codes and records are those of Confluent's documentation and of its registry's classes.
"""

import json

import pytest

pytest.importorskip("starlette")
pytest.importorskip("avro")

from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from ottla.registry.application import CONTENT_TYPE, application
from ottla.registry.operations import Registry
from ottla.registry.state import State

TEXT = json.dumps


class Topic:
    """A topic in memory: each record as bytes, and the state that they give."""

    def __init__(self, records=()):
        self.state, self.records = State(), []
        for key, value in records:
            self.state.apply(json.loads(key), None if value is None else json.loads(value))

    async def refresh(self):
        pass

    async def write(self, *records):
        for key, value in records:
            self.records.append((TEXT(key), None if value is None else TEXT(value)))
            self.state.apply(key, value)


class Api:
    """A client that returns (status, JSON)."""

    def __init__(self, topic=None, host="127.0.0.1"):
        self.topic = topic or Topic()
        app = application(Registry(self.topic))
        self.client = TestClient(app, base_url=f"http://{host}", raise_server_exceptions=False)

    def __call__(self, method, path, body=None, **headers):
        headers = {"Content-Type": CONTENT_TYPE, **headers}
        content = None if body is None else TEXT(body)
        response = self.client.request(method, path, content=content, headers=headers)
        return response.status_code, response.json()

    def register(self, subject, schema, **more):
        text = schema if isinstance(schema, str) else TEXT(schema)
        return self("POST", f"/subjects/{subject}/versions", {"schema": text, **more})


@pytest.fixture
def api():
    return Api()


def record(*fields, name="R"):
    """Return an Avro record: "a" without a default, "b=" with one, each an int."""
    found = [
        {"name": f.rstrip("="), "type": "int", **({"default": 0} if f.endswith("=") else {})}
        for f in fields
    ]
    return {"type": "record", "name": name, "fields": found}


def code(answer):
    status, body = answer
    return status, body.get("error_code")


def test_a_schema_has_one_id_everywhere_and_a_version_in_each_subject(api):
    assert api.register("a", record("x"))[1]["id"] == 1
    assert api.register("a", TEXT(record("x"), indent=2))[1] == api.register("a", record("x"))[1]
    assert api.register("b", record("x"))[1]["id"] == 1
    assert api.register("a", record("x", "y="))[1] == {
        "id": 2, "version": 2, "schema": TEXT(record("x", "y="), separators=(",", ":")),
    }  # fmt: skip
    assert api("GET", "/subjects")[1] == ["a", "b"]
    assert api("GET", "/subjects?subjectPrefix=b")[1] == ["b"]
    assert api("GET", "/subjects/a/versions")[1] == [1, 2]
    assert api("GET", "/schemas/ids/1")[1] == {"schema": TEXT(record("x"), separators=(",", ":"))}
    assert api("GET", "/schemas/ids/1?fetchMaxId=true")[1]["maxId"] == 2
    assert api("GET", "/schemas/ids/1/subjects")[1] == ["a", "b"]
    assert api("GET", "/schemas/ids/2/versions")[1] == [{"subject": "a", "version": 2}]
    latest = api("GET", "/subjects/a/versions/latest")[1]
    assert (latest["subject"], latest["version"], latest["id"]) == ("a", 2, 2)
    assert api("GET", "/subjects/a/versions/-1")[1] == latest
    assert api("GET", "/subjects/a/versions/2/schema")[1] == record("x", "y=")
    found = api("POST", "/subjects/a", {"schema": TEXT(record("x"))})[1]
    assert (found["version"], found["id"]) == (1, 1)
    assert len(api("GET", "/schemas?latestOnly=true")[1]) == 2
    assert api("GET", "/schemas/types")[1] == ["JSON", "PROTOBUF", "AVRO"]
    assert api("GET", "/")[1] == {}


def test_errors_have_confluents_codes(api):
    api.register("a", record("x"))
    schema = {"schema": TEXT(record("x"))}
    assert code(api("GET", "/subjects/no/versions")) == (404, 40401)
    assert code(api("GET", "/subjects/no/versions/1")) == (404, 40401)
    assert code(api("GET", "/subjects/no/versions/latest")) == (404, 40401)
    assert code(api("POST", "/subjects/no", schema)) == (404, 40401)
    assert code(api("GET", "/subjects/a/versions/7")) == (404, 40402)
    assert code(api("GET", "/subjects/a/versions/x")) == (422, 42202)
    assert code(api("GET", "/subjects/a/versions/0")) == (422, 42202)
    assert code(api("POST", "/subjects/a", {"schema": TEXT(record("y"))})) == (404, 40403)
    assert code(api("GET", "/schemas/ids/9")) == (404, 40403)
    assert code(api.register("a", "{")) == (422, 42201)
    assert code(api.register("a", {"type": "recard"})) == (422, 42201)
    assert code(api.register("a", "")) == (422, 42201)
    assert code(api.register("a", {"type": "nothing"}, schemaType="JSON")) == (422, 42201)
    assert code(api.register("a", "%%%", schemaType="PROTOBUF")) == (422, 42201)
    assert code(api.register("a", "x", schemaType="XML"))[0] == 422
    assert code(api("PUT", "/config", {"compatibility": "SIDEWAYS"})) == (422, 42203)
    assert code(api("PUT", "/mode", {"mode": "SLEEP"})) == (422, 42204)
    assert code(api("GET", "/config/a")) == (404, 40408)
    assert code(api("GET", "/mode/a")) == (404, 40409)
    assert code(api("GET", "/nowhere"))[0] == 404
    assert code(api("PATCH", "/subjects"))[0] == 405
    assert code(api("DELETE", "/subjects/a?permanent=true")) == (404, 40405)
    assert code(api("DELETE", "/subjects/a/versions/1?permanent=true")) == (404, 40407)
    assert len(api.topic.records) == 1  # nothing of all this was written


def test_bodies_that_are_none_and_hosts_of_others_are_refused(api):
    send = api.client.request
    assert send("POST", "/subjects/a", content="{}", headers={"Content-Type": "text/plain"}
                ).status_code == 415  # fmt: skip
    assert code(api("POST", "/subjects/a/versions", [1])) == (400, 400)
    large = {"schema": "x" * (3 << 20)}
    assert code(api("POST", "/subjects/a/versions", large)) == (413, 413)
    assert code(Api(host="evil.example")("GET", "/subjects")) == (421, 421)


# -- compatibility ------------------------------------------------------------------------------

OLD, NEW = record("x"), record("x", "y")  # adds a field without a default
CASES = {
    "NONE": (True, True, True), "BACKWARD": (False, True, True), "FORWARD": (True, True, False),
    "FULL": (False, True, False),
}  # fmt: skip
"""Whether may follow: one more field, one more with a default, one less."""


@pytest.mark.parametrize("level", CASES)
@pytest.mark.parametrize("transitive", [False, True])
def test_levels(api, level, transitive):
    name = f"{level}_TRANSITIVE" if transitive and level != "NONE" else level
    assert api("PUT", "/config/a", {"compatibility": name})[1] == {"compatibility": name}
    assert api("GET", "/config/a")[1] == {"compatibilityLevel": name}
    followers = (record("x", "y"), record("x", "y="), {**record(), "fields": []})
    for allowed, schema in zip(CASES[level], followers, strict=True):
        api("DELETE", "/subjects/a")
        api("DELETE", "/subjects/a?permanent=true")
        api.register("a", record("x"))
        path = "/compatibility/subjects/a/versions"
        asked = {"schema": TEXT(schema)}
        assert api("POST", f"{path}/latest", asked)[1] == {"is_compatible": allowed}
        verbose = api("POST", f"{path}?verbose=true", asked)[1]
        assert (verbose["is_compatible"], verbose["messages"] == []) == (allowed, allowed)
        assert code(api.register("a", schema)) == ((200, None) if allowed else (409, 409))


def test_transitive_levels_compare_with_all_versions(api):
    api("PUT", "/config", {"compatibility": "NONE"})
    for schema in (record("x", "z"), record("x")):
        api.register("a", schema)
    follows = record("x", "y=")
    for level, allowed in (("FORWARD", True), ("FORWARD_TRANSITIVE", False)):
        api("PUT", "/config", {"compatibility": level})
        asked = {"schema": TEXT(follows)}
        found = api("POST", "/compatibility/subjects/a/versions", asked)[1]
        assert found == {"is_compatible": allowed}
    assert api("DELETE", "/config")[1] == {"compatibilityLevel": "FORWARD_TRANSITIVE"}
    assert api("GET", "/config")[1] == {"compatibilityLevel": "BACKWARD"}


def test_another_type_does_not_follow_and_json_and_protobuf_are_taken(api):
    api.register("a", record("x"))
    thing = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert code(api.register("a", thing, schemaType="JSON")) == (409, 409)
    first = api.register("j", thing, schemaType="JSON")[1]
    again = api.register("j", TEXT(thing, indent=1), schemaType="JSON")[1]
    assert first == again
    assert api("GET", f"/schemas/ids/{first['id']}")[1]["schemaType"] == "JSON"
    proto = 'syntax = "proto3"; message M { int32 x = 1; }'
    assert api.register("p", proto, schemaType="PROTOBUF")[1]["version"] == 1
    assert api.register("p", proto, schemaType="PROTOBUF")[1]["version"] == 1


# -- references ---------------------------------------------------------------------------------


def test_references_are_resolved_and_keep_what_they_name(api):
    api.register("inner", record("x", name="Inner"))
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "i", "type": "Inner"}]}
    assert code(api.register("outer", outer)) == (422, 42201)
    refers = [{"name": "Inner", "subject": "inner", "version": 1}]
    missing = [{"name": "Inner", "subject": "inner", "version": 2}]
    assert code(api.register("outer", outer, references=missing)) == (422, 42201)
    new = api.register("outer", outer, references=refers)[1]
    assert new["references"] == refers
    assert api("GET", f"/schemas/ids/{new['id']}")[1]["references"] == refers
    assert api("GET", "/subjects/inner/versions/1/referencedby")[1] == [new["id"]]
    assert code(api("DELETE", "/subjects/inner/versions/1")) == (422, 42206)
    assert code(api("DELETE", "/subjects/inner")) == (422, 42206)


# -- deleting, modes ----------------------------------------------------------------------------


def test_deleting_is_soft_then_permanent_and_ids_stay(api):
    api.register("a", record("x"))
    api.register("a", record("x", "y="))
    assert api("DELETE", "/subjects/a/versions/1")[1] == 1
    assert code(api("DELETE", "/subjects/a/versions/1")) == (404, 40406)
    assert api("GET", "/subjects/a/versions")[1] == [2]
    assert api("GET", "/subjects/a/versions?deleted=true")[1] == [1, 2]
    assert code(api("GET", "/subjects/a/versions/1")) == (404, 40402)
    assert api("GET", "/schemas/ids/1")[0] == 200  # its records are still there
    assert api("DELETE", "/subjects/a/versions/1?permanent=true")[1] == 1
    assert api("DELETE", "/subjects/a")[1] == [2]
    assert code(api("DELETE", "/subjects/a")) == (404, 40404)
    assert api("GET", "/subjects")[1] == []
    assert api("GET", "/subjects?deleted=true")[1] == ["a"]
    again = api.register("a", record("x", "y="))[1]
    assert (again["id"], again["version"]) == (2, 3)
    assert api("DELETE", "/subjects/a")[1] == [3]
    assert api("DELETE", "/subjects/a?permanent=true")[1] == [2, 3]
    assert code(api("GET", "/subjects/a/versions?deleted=true")) == (404, 40401)


def test_modes(api):
    assert api("GET", "/mode")[1] == {"mode": "READWRITE"}
    assert api("PUT", "/mode/a", {"mode": "READONLY"})[1] == {"mode": "READONLY"}
    assert code(api.register("a", record("x"))) == (422, 42205)
    assert code(api.register("b", record("x"), id=7)) == (422, 42205)
    assert api("DELETE", "/mode/a")[1] == {"mode": "READONLY"}
    assert api("PUT", "/mode/a", {"mode": "IMPORT"})[1] == {"mode": "IMPORT"}
    assert api.register("a", record("x"), id=77, version=5)[1]["id"] == 77
    assert code(api.register("a", record("z"), id=77)) == (422, 42205)
    assert code(api("PUT", "/mode", {"mode": "IMPORT"})) == (422, 42205)
    assert api("PUT", "/mode?force=true", {"mode": "IMPORT"})[0] == 200
    assert api("GET", "/subjects/a/versions")[1] == [5]


# -- records ------------------------------------------------------------------------------------


def test_records_are_those_of_confluents_registry(api):
    api.register("a", record("x"))
    api("PUT", "/config/a", {"compatibility": "FULL"})
    api("PUT", "/mode", {"mode": "READONLY"})
    api("PUT", "/mode", {"mode": "READWRITE"})
    api("DELETE", "/subjects/a")
    text = TEXT(record("x"), separators=(",", ":"))
    found = [(json.loads(k), v and json.loads(v)) for k, v in api.topic.records]
    assert found == [
        ({"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1},
         {"subject": "a", "version": 1, "id": 1, "schema": text, "deleted": False}),
        ({"keytype": "CONFIG", "subject": "a", "magic": 0},
         {"subject": "a", "compatibilityLevel": "FULL"}),
        ({"keytype": "MODE", "subject": None, "magic": 0}, {"subject": None, "mode": "READONLY"}),
        ({"keytype": "MODE", "subject": None, "magic": 0}, {"subject": None, "mode": "READWRITE"}),
        ({"keytype": "DELETE_SUBJECT", "subject": "a", "magic": 0}, {"subject": "a", "version": 1}),
    ]  # fmt: skip


def test_what_confluents_registry_wrote_is_read():
    topic = Topic([
        ('{"keytype":"NOOP","magic":0}', None),
        ('{"keytype":"CONFIG","subject":null,"magic":0}',
         '{"subject":null,"compatibilityLevel":"NONE","alias":null}'),
        ('{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}',
         '{"subject":"s","version":3,"id":12,"schemaType":"JSON","schema":"{}","deleted":false}'),
        ('{"keytype":"CONTEXT","tenant":"default","context":".","magic":0}', '{"context":"."}'),
    ])  # fmt: skip
    api = Api(topic)
    assert api("GET", "/config")[1] == {"compatibilityLevel": "NONE"}
    assert api("GET", "/subjects/s/versions/3")[1]["id"] == 12
    assert api.register("s", {"type": "object"}, schemaType="JSON")[1] == {
        "id": 13, "version": 4, "schemaType": "JSON", "schema": '{"type":"object"}',
    }  # fmt: skip


steps = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.sampled_from(["add", "del", "purge"])),
    max_size=12,
)


@settings(deadline=None, max_examples=25)
@given(steps)
def test_the_topic_read_again_gives_the_same_state(steps):
    api = Api()
    api("PUT", "/config", {"compatibility": "NONE"})
    for subject, number, what in steps:
        if what == "add":
            api.register(subject, record(*("x", "y", "z")[:number]))
        else:
            api("DELETE", f"/subjects/{subject}" + ("?permanent=true" if what == "purge" else ""))
    last = {key: at for at, (key, _) in enumerate(api.topic.records)}
    compacted = [api.topic.records[at] for at in sorted(last.values())]
    for records in (api.topic.records, compacted):
        again = Topic(records).state
        assert {s: v for s, v in again.subjects.items() if v} == api.topic.state.subjects
        for schema_id, schema in again.schemas.items():
            assert api.topic.state.schemas[schema_id] == schema
