"""The console's guard: who gets in, what a request may be, and the headers of every response."""

import re
from urllib.parse import urlencode

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from ottla.console.guard import FORM_TYPE, HEADERS, MAX_FORM_BYTES, MOST_FIELDS, Guard
from ottla.console.sessions import MOST_SESSIONS, SESSION_S, Sessions
from ottla.net.host_header import host_name, is_allowed
from support.console import let_in_as_a_program


async def inner(scope, receive, send):
    """The application behind: it says what it was given."""
    state = scope.get("state", {})
    await PlainTextResponse(f"inside {scope['path']} {state.get('form', [])}")(scope, receive, send)


def browser(sessions=None, host="127.0.0.1:8090", **more):
    sessions = sessions or Sessions()
    scheme = "https" if more.get("secure") else "http"
    http = TestClient(
        Guard(inner, sessions, **more), base_url=f"{scheme}://{host}", follow_redirects=False
    )
    http.sessions = sessions
    return http


def let_in(**more):
    http = browser(**more)
    assert http.get("/login", params={"token": http.sessions.token}).status_code == 200
    (session,) = http.sessions._sessions.values()
    http.form_token = session.form_token
    let_in_as_a_program(http)
    return http


def post(http, headers=(), **fields):
    return http.post(
        "/x", content=urlencode(fields), headers={"content-type": FORM_TYPE, **dict(headers)}
    )


def test_without_a_session_nothing_is_shown_but_what_is_no_secret():
    http = browser()
    for path in ("/", "/topics", "/live", "/login", "/login?token=", "/login?token=%00x"):
        assert http.get(path).status_code == 401, path
    assert post(http).status_code == 401
    assert http.get("/static/console.css").text.startswith("inside")
    assert http.post("/static/console.css").status_code == 401


def test_a_link_lets_in_once():
    http = browser()
    token = http.sessions.token
    response = http.get("/login", params={"token": token})
    cookie = response.headers["set-cookie"]
    assert re.fullmatch(r"ottla-console=\S{40,}; HttpOnly; Path=/s/\S+; SameSite=strict", cookie)
    let_in_as_a_program(http)
    assert http.get("/").text == "inside / []"
    assert browser(http.sessions).get("/login", params={"token": token}).status_code == 401
    assert browser(http.sessions).get("/").status_code == 401


def test_a_browser_sends_the_cookie_below_a_secret_path_only():
    """A cookie of localhost goes to each of its ports, to other users' servers, too."""
    http = browser()
    entered = http.get("/login", params={"token": http.sessions.token})
    (session,) = http.sessions._sessions.values()
    assert re.search(r"; Path=(/s/[\w-]{20,}); ", entered.headers["set-cookie"])[1] == session.place
    assert f'url={session.place}/"' in entered.text
    assert http.get("/").status_code == 401, "nothing was sent"
    assert http.get(f"{session.place}/topics").text == "inside /topics []"
    assert http.get(f"{session.place}/static/x").text == "inside /static/x []"
    (cookie,) = http.cookies.jar
    headers = {"cookie": f"{cookie.name}={cookie.value}"}
    for path in ("/s/x/", "/s//", f"{session.place}x/", "/s/"):
        assert browser(http.sessions).get(path, headers=headers).status_code == 401, path
    for theirs in (
        f"{cookie.name}=; ",
        f"{cookie.name}=theirs;",
    ):  # set by a server of another port
        both = {"cookie": theirs + headers["cookie"]}
        assert browser(http.sessions).get("/", headers=both).is_success
        both = {"cookie": headers["cookie"] + "; " + theirs}
        assert browser(http.sessions).get("/", headers=both).is_success


def test_places_are_of_their_sessions():
    sessions = Sessions()
    first, second = (sessions.enter(sessions.token) for _ in range(2))
    assert sessions.find(first.key, first.place) is first
    assert sessions.find(first.key, second.place) is None
    assert sessions.find(first.key) is first


def test_whoever_prints_links_hears_that_one_was_used():
    used = []
    http = browser(entered=lambda: used.append(http.sessions.token))
    before = http.sessions.token
    http.get("/login", params={"token": "wrong"})
    assert used == []
    http.get("/login", params={"token": before})
    assert used == [http.sessions.token] != [before]


def test_sessions_are_bounded_in_number_and_time():
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    first = sessions.enter(sessions.token)
    assert sessions.find(first.key) is first
    now[0] = SESSION_S
    assert sessions.find(first.key) is None
    opened = [sessions.enter(sessions.token) for _ in range(MOST_SESSIONS + 1)]
    assert sessions.find(opened[0].key) is None
    assert [sessions.find(s.key) for s in opened[1:]] == opened[1:]
    sessions.leave_all()
    assert sessions.find(opened[-1].key) is None


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8090", "localhost"),
        ("LOCALHOST", "localhost"),
        ("[::1]:8090", "::1"),
        ("[::1]", "::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("evil.example:8090", "evil.example"),
        ("", None),
        ("[::1", None),
        ("[::1]x", None),
        ("localhost:x", None),
        ("localhost:123456", None),
    ],
)
def test_the_name_of_a_host_header(header, name):
    assert host_name(header) == name


def test_a_name_that_another_can_rebind_is_not_served():
    for host in ("localhost:1", "127.0.0.1:8090", "[::1]:8090", "10.0.0.7:8090", "console.example"):
        assert is_allowed(host, {"console.example"}), host
    for host in (
        "evil.example",
        "localhost.evil.example:8090",
        "127.0.0.1.evil.example",
        "",
        "@",
        "\0",
    ):
        assert not is_allowed(host, {"console.example"}), host
    http = let_in()
    assert http.get("/", headers={"host": "evil.example:8090"}).status_code == 421
    assert http.get("/static/x", headers={"host": "evil.example"}).status_code == 421
    assert (
        let_in(names=["Console.Example"]).get("/", headers={"host": "console.example"}).is_success
    )


def test_a_form_has_the_token_of_its_session():
    http, other = let_in(), let_in()
    assert post(http, form_token=http.form_token, a="1").text == "inside /x [('a', '1')]"
    for token in ("", "x", other.form_token, "\udcff"):
        body = urlencode({"form_token": token}, errors="surrogateescape")
        response = http.post("/x", content=body, headers={"content-type": FORM_TYPE})
        assert response.status_code in (400, 403), token
    assert post(http).status_code == 403
    twice = urlencode([("form_token", http.form_token)] * 2)
    assert http.post("/x", content=twice, headers={"content-type": FORM_TYPE}).status_code == 403


@pytest.mark.parametrize(
    "header",
    [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://["),
        ("origin", "http://127.0.0.1:9999"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ],
)
def test_a_form_that_another_site_sends_is_refused(header):
    http = let_in()
    assert post(http, [header], form_token=http.form_token).status_code == 403
    same = [("origin", "http://127.0.0.1:8090"), ("sec-fetch-site", "same-origin")]
    assert post(http, same, form_token=http.form_token).is_success


def test_by_https_the_cookie_is_secure_and_forms_come_from_https():
    http = browser(secure=True, cookie="__Secure-x")
    response = http.get("/login", params={"token": http.sessions.token})
    cookie = response.headers["set-cookie"]
    form = r"__Secure-x=\S{40,}; HttpOnly; Path=/s/\S+; SameSite=strict; Secure"
    assert re.fullmatch(form, cookie), cookie
    let_in_as_a_program(http)
    (session,) = http.sessions._sessions.values()
    token = session.form_token
    host = "127.0.0.1:8090"
    assert post(http, [("origin", f"https://{host}")], form_token=token).is_success
    assert post(http, form_token=token).is_success
    for origin in (f"http://{host}", "https://127.0.0.1", "https://127.0.0.1:443", f"//{host}"):
        assert post(http, [("origin", origin)], form_token=token).status_code == 403, origin
    for response in (http.get("/"), http.get("/login"), http.get("/", headers={"host": "evil"})):
        assert "strict-transport-security" not in response.headers


def test_forms_are_bounded():
    http = let_in()
    token = http.form_token
    assert post(http, form_token=token, a="x" * MAX_FORM_BYTES).status_code == 413

    def pieces():
        for _ in range(5):
            yield b"x" * (MAX_FORM_BYTES // 4)

    sent = http.post("/x", content=pieces(), headers={"content-type": FORM_TYPE})
    assert sent.status_code == 413
    many = urlencode([("form_token", token)] + [("a", "")] * MOST_FIELDS)
    assert http.post("/x", content=many, headers={"content-type": FORM_TYPE}).status_code == 400
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/json", ""):
        sent = http.post("/x", content=b"form_token=x", headers={"content-type": kind})
        assert sent.status_code == 415, kind
    for body in (b"\xff", b"form_token=%ff"):
        sent = http.post("/x", content=body, headers={"content-type": FORM_TYPE})
        assert sent.status_code == 400, body


def test_read_only_refuses_every_form():
    http = let_in(read_only=True)
    assert post(http, form_token=http.form_token).status_code == 403
    assert http.get("/").is_success


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_not_served(method):
    assert let_in().request(method, "/").status_code == 405


def test_every_response_has_the_headers():
    http = let_in()
    responses = [
        http.get("/"), http.get("/static/x"), http.get("/login"), browser().get("/"),
        http.get("/", headers={"host": "evil"}), http.put("/"), post(http),
        post(http, form_token=http.form_token),
    ]  # fmt: skip
    for response in responses:
        for name, value in HEADERS:
            assert response.headers.get_list(name) == [value], (response.url, name)
    policy = dict(HEADERS)["content-security-policy"]
    assert "'unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_damaged_cookies_are_none():
    for cookie in ("ottla-console=", "ottla-console", "=;=,;", 'ottla-console=\\"x', "x" * 5000):
        assert browser().get("/", headers={"cookie": cookie}).status_code == 401, cookie
