"""Whatever a browser sends, a page or a refusal comes back: never an error of ours."""

import pytest

from ottla.console.application import GETS, POSTS
from support.console import form_token

FIELDS = (
    "name", "id", "topic", "topics", "partition", "offset", "from", "key", "q", "as", "isolation",
    "at", "page", "by", "kind", "set", "event", "broker", "brokers", "again", "hanging", "older",
    "principal", "value", "headers", "writing", "to", "operation", "deed", "plan", "throttle",
    "factor", "drain", "resource", "pattern", "permission", "host", "password", "mechanism",
    "steps", "count", "looked", "bytes", "total",
)  # fmt: skip
VALUES = (
    "", "-1", "0", "1", "9" * 10, "9" * 25, "1e9", "٣", "x" * 1001, "\x00", "\x1b[31m\u202e",
    "😀", "<script>", "../../etc/passwd", "%s{{7*7}}", "0:1,1:x", "{}", "[[[[", "topic", "User:*",
    "\r\n\r\n",
)  # fmt: skip
STATUSES = (200, 303, 400, 401, 404, 502)
ENDS_SESSIONS = "/leave"


@pytest.fixture(scope="module", autouse=True)
def topic(cluster):
    cluster.create_topic("nasty")


@pytest.mark.parametrize("path", GETS)
def test_pages(page, path):
    for value in VALUES:
        response = page.http.get(path, params=dict.fromkeys(FIELDS, value))
        assert response.status_code in STATUSES, (path, value)
        assert "<script>" not in response.text


def test_searches(page):
    for value in VALUES:
        for topic in ("nasty", value):
            fields = {**dict.fromkeys(FIELDS, value), "of": "search", "topic": topic}
            for given in (fields, {"of": "search", "topic": topic, "at": value, "q": value}):
                response = page.http.get("/live", params=given)
                assert response.status_code in STATUSES, (value, topic)
                assert "<script>" not in response.text


@pytest.mark.parametrize("path", [p for p in POSTS if p != ENDS_SESSIONS])
def test_forms(page, path):
    token = form_token(page.http)
    for value in VALUES:
        for right in ({"topic": "nasty", "kind": "topic", "name": "nasty"}, {"do": "1"}):
            data = {**dict.fromkeys(FIELDS, value), **right, "form_token": token}
            response = page.http.post(path, data=data, follow_redirects=False)
            assert response.status_code in STATUSES, (path, value, right)
            assert "<script>" not in response.text


@pytest.mark.parametrize("path", [*GETS, *POSTS])
def test_nothing_at_all_is_given(page, path):
    response = page.http.get(path)
    assert response.status_code in (*STATUSES, 405)
    if path in POSTS and path != ENDS_SESSIONS:
        data = {"form_token": form_token(page.http)}
        assert page.http.post(path, data=data, follow_redirects=False).status_code in STATUSES
