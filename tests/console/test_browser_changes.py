"""Every change in a real browser: its button, its preview, and what another client sees then.

Chromium without a window, by selenium; skipped where they are not installed. The cluster has
something there for each change; its brokers have an authorizer: pages of rules are here, too.
"""

import re

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.admin.session import connected
from ottla.client import acls, reassignments, scram_users
from ottla.security.acls import AclFilter
from support.browser import (
    agree,
    axe_script,
    chromium,
    complaints,
    phone,
    set_scheme,
    tab_order,
    until,
    violations,
    why_not,
    width,
)
from support.clients import stable_end
from support.console_changes import PLAN, PREVIEWS, filled
from support.console_process import served
from support.hanging import hanging

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]

PAGES = (
    "/acls", "/acls?principal=User:alice", "/users", "/transactions", "/transaction?id=open",
    "/transactions?hanging=1&older=0", "/reassign", "/chaos",
)  # fmt: skip
ASKED = [
    (path, number)
    for path, changes in PREVIEWS.items()
    if path not in (PLAN, "/reassign/execute")
    for number in range(len(changes))
]


@pytest.fixture(scope="module")
def cluster():
    with filled() as found:
        found.create_topic("late")
        found.late_offset = hanging(found.bootstrap, "late", "hangs")
        yield found


@pytest.fixture(scope="module")
def console(cluster):
    with served("--dir", cluster.dir) as found:
        yield found


@pytest.fixture(scope="module")
def browser(console):
    with chromium() as driver:
        driver.get(console.link)
        until(lambda: driver.current_url.endswith("/"), 10)
        console.base = driver.current_url.removesuffix("/")
        yield driver


def open_page(browser, console, path):
    browser.get(f"{console.base}{path}")
    until(lambda: browser.execute_script("return document.readyState") == "complete", 20)


def open_preview(browser, console, path, fields):
    """Send a form that asks for a change, as its page would."""
    open_page(browser, console, "/doctor")
    browser.execute_script(
        "const form = document.createElement('form');"
        "form.method = 'post'; form.action = arguments[0];"
        "const token = document.querySelector('[name=form_token]').value;"
        "for (const [name, value] of [['form_token', token], ...Object.entries(arguments[1])]) {"
        "  const field = document.createElement('input');"
        "  field.type = 'hidden'; field.name = name; field.value = value; form.append(field);"
        "}"
        "document.body.append(form); form.submit();",
        f"{console.base}{path}", fields,
    )  # fmt: skip
    until(lambda: browser.find_elements("css selector", "main button.do"), 20)


def check(browser):
    """Check what holds for every page: no complaint, no wide page, nothing found by axe-core."""
    assert complaints(browser) == []
    with phone(browser):
        assert width(browser) <= 360
    script = axe_script()
    for scheme in ("light", "dark") if script is not None else ():
        set_scheme(browser, scheme)
        assert violations(browser, script) == [], scheme


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_as_every_page_is_to_be(console, browser, path):
    open_page(browser, console, path)
    assert browser.find_elements("css selector", "main h1")
    check(browser)


@pytest.mark.parametrize(("path", "number"), ASKED)
def test_a_preview_is_as_every_page_is_to_be(console, browser, path, number):
    open_preview(browser, console, path, PREVIEWS[path][number])
    check(browser)


def test_tab_goes_through_a_preview_and_a_page_of_rules(console, browser):
    open_preview(browser, console, "/chaos/do", {"deed": "kill", "broker": "1"})
    wanted, got = tab_order(browser)
    assert got == wanted
    assert wanted.index("button Kill broker 1") < wanted.index("a Go back")
    open_page(browser, console, "/acls")
    wanted, got = tab_order(browser)
    assert got == wanted
    assert any(name.startswith("button Remove this rule") for name in wanted)


# --- each change by its button ----------------------------------------------------------------


def fill(browser, action, **fields):
    """Fill in the form that goes to `action`, and press its button."""
    from selenium.webdriver.support.ui import Select

    form = browser.find_element(
        "css selector", f"form[action$='{action}']:has(input:not([type=hidden]), select)"
    )
    for name, value in fields.items():
        field = form.find_element("css selector", f"[name={name}]")
        if field.tag_name == "select":
            Select(field).select_by_visible_text(value)
        else:
            field.clear()
            field.send_keys(value)
    form.find_element("css selector", "button").click()


def press(browser, text):
    """Press the button that says so."""
    pressed = (  # in one step: a part that is live may be replaced between finding and pressing
        "const all = [...document.querySelectorAll('main button')];"
        "const found = all.find(b => b.textContent.includes(arguments[0]));"
        "if (found) found.click(); return Boolean(found)"
    )
    until(lambda: browser.execute_script(pressed, text), 20)


def main(browser):
    return browser.find_element("tag name", "main").text


def test_a_topic_is_created(cluster, console, browser):
    open_page(browser, console, "/topics")
    fill(browser, "/topics/create", name="by-button", partitions="2", replicas="3")
    assert "by-button" in agree(browser)
    until(lambda: "Topic by-button" in main(browser), 20)
    assert len(cluster.replicas_of("by-button-1")) == 3
    assert complaints(browser) == []


def test_moves_are_cancelled_live(cluster, console, browser):
    open_page(browser, console, "/reassign")
    until(lambda: "Moving 1 partition" in main(browser), 30)
    press(browser, "Cancel all")
    assert "moved-0" in agree(browser)
    until(lambda: "No reassignment in progress" in main(browser), 30)
    assert connected(cluster.bootstrap, reassignments.in_progress) == {}
    assert not [b for b in browser.find_elements("css selector", "#cancel button")
                if "Cancel" in b.text]  # fmt: skip


def test_throttles_are_removed(cluster, console, browser):
    open_page(browser, console, "/reassign")
    press(browser, "Remove …")
    assert "replication.throttled.rate=1000" in agree(browser)
    until(lambda: "left behind" not in main(browser), 30)


def test_a_plan_is_made_and_begun(cluster, console, browser):
    open_page(browser, console, "/reassign")
    fill(browser, "/reassign/plan", topics="kept", factor="2")
    until(lambda: browser.find_elements("css selector", "main button.do"), 20)
    check(browser)
    assert "kept-0" in agree(browser)
    until(lambda: len(cluster.isr_of("kept-0")) == 2, 60)
    until(lambda: "No reassignment in progress" in main(browser), 30)


def settings(cluster, kind, name):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(kind, name)
    return {k: v.value for k, v in admin.describe_configs([resource])[resource].result(20).items()}


def test_settings_of_a_topic_and_a_broker(cluster, console, browser):
    open_page(browser, console, "/settings?kind=topic&name=kept")
    fill(browser, "/settings/alter", key="retention.ms", value="7200000")
    agree(browser)
    assert settings(cluster, ConfigResource.Type.TOPIC, "kept")["retention.ms"] == "7200000"
    open_page(browser, console, "/settings?kind=broker&name=1")
    fill(browser, "/settings/alter", key="log.cleaner.threads", value="2")
    agree(browser)
    key, kind = "log.cleaner.threads", ConfigResource.Type.BROKER
    until(lambda: settings(cluster, kind, "1")[key] == "2", 30)
    assert settings(cluster, kind, "2")[key] == "1"


def committed(cluster, group):
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition("moved", 0)], 20)
    consumer.close()
    return found.offset


def test_offsets_of_a_group(cluster, console, browser):
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("moved", 0, 20)], asynchronous=False)
    consumer.close()
    open_page(browser, console, "/group?name=readers")
    fill(browser, "/group/reset", to="offset", value="7")
    assert "moved" in agree(browser)
    assert committed(cluster, "readers") == 7
    assert complaints(browser) == []


def test_rules_and_users(cluster, console, browser):
    def rules():
        found = connected(cluster.bootstrap, lambda c: acls.find(c, AclFilter()))
        return sorted(acl.entry.principal for acl in found)

    assert rules() == ["User:alice"]
    open_page(browser, console, "/acls")
    fill(browser, "/acls/change", principal="User:<b>bob</b>", operation="Read", name="moved")
    assert "User:<b>bob</b>" in agree(browser)
    until(lambda: rules() == ["User:<b>bob</b>", "User:alice"], 20)
    open_page(browser, console, "/acls?principal=User:alice")
    browser.find_element("css selector", "[aria-label='Remove this rule']").click()
    agree(browser)
    until(lambda: rules() == ["User:<b>bob</b>"], 20)

    def users():
        return [user.name for user in connected(cluster.bootstrap, scram_users.describe)]

    open_page(browser, console, "/users")
    fill(browser, "/users/put", name="carol", password="very secret", again="very secret")
    until(lambda: browser.find_elements("css selector", "main button.do"), 20)
    assert "very secret" not in browser.page_source
    assert users() == ["alice"]
    agree(browser)
    until(lambda: users() == ["alice", "carol"], 20)
    browser.find_element("css selector", "[aria-label='Remove this user']").click()
    assert "alice" in agree(browser)
    until(lambda: users() == ["carol"], 20)
    assert complaints(browser) == []


def test_a_transaction_that_hangs_is_ended(cluster, console, browser):
    def end():
        return stable_end(cluster.bootstrap, "late", 0)

    assert end() == cluster.late_offset
    open_page(browser, console, "/transactions?hanging=1&older=0")
    press(browser, "Abort …")
    assert "Transaction in late-0" in agree(browser)
    until(lambda: end() > cluster.late_offset, 30)
    open_page(browser, console, "/transactions?hanging=1&older=0")
    assert "No hanging transactions" in main(browser)


def test_a_transaction_is_live_on_its_page(cluster, console, browser):
    open_page(browser, console, "/transaction?id=open")
    assert "Ongoing" in main(browser)
    browser.execute_script("window.loaded = 1")
    cluster.open_one.abort_transaction(30)
    until(lambda: "CompleteAbort" in main(browser), 20)
    assert browser.execute_script("return window.loaded") == 1, "without a reload"


def test_all_sessions_are_ended(console, browser):
    open_page(browser, console, "/doctor")
    browser.find_element("xpath", "//footer//button").click()
    until(lambda: "All sessions ended" in browser.page_source, 20)
    browser.get(f"{console.base}/")
    assert re.search("No session", browser.page_source)
