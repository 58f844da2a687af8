"""The console in a real browser: every page, a kill, hostile text, a phone's width, the keyboard.

Chromium without a window, by selenium; skipped where they are not installed.
"""

import http.server
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient

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
from support.command_line import ottla
from support.console_process import served, up

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'\x1b[31m\u202e'
SHOWN = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'\\x1b[31m\\u202e'
MIB = 1_048_576
PAGES = (
    "/", "/topics", "/topic?name=orders", "/messages?topic=orders&from=beginning",
    "/messages?topic=orders&live=1", "/messages?topic=orders&from=beginning&q=x",
    "/message?topic=orders&partition=0&offset=0",
    "/produce?topic=orders", "/groups", "/group?name=readers", "/transactions", "/reassign",
    "/users", "/settings?kind=broker", "/settings?kind=broker&name=0",
    "/settings?kind=topic&name=orders", "/doctor", "/broker?id=1", "/whatif", "/whatif?broker=1",
    "/why", "/why?partition=orders-0", "/chaos", "/nothing", "/topic?name=%3Cb%3E",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with up(tmp_path_factory.mktemp("browser") / "data") as found:
        bootstrap = found.bootstrap()
        larger = ("--config", "max.message.bytes=2000000", "--dir", found.path)
        assert ottla("topics", "create", "hostile", *larger).returncode == 0
        producer = Producer(
            {"bootstrap.servers": bootstrap, "allow.auto.create.topics": True,
             "message.max.bytes": 2_000_000}
        )  # fmt: skip
        for topic in ("orders", "hostile"):
            for _ in range(3):
                producer.produce(topic, HOSTILE, HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
        producer.produce("hostile", b"\xff\xfe\x00\x1b")
        producer.produce("hostile", b"x" * MIB)
        assert producer.flush(60) == 0
        for group in ("readers", HOSTILE):
            consumer = Consumer(
                {"bootstrap.servers": bootstrap, "group.id": group, "client.id": HOSTILE,
                 "auto.offset.reset": "earliest", "enable.auto.commit": False}
            )  # fmt: skip
            consumer.subscribe(["orders"])
            assert consumer.poll(30) is not None
            consumer.commit(asynchronous=False)
            consumer.close()
        yield found


@pytest.fixture(scope="module")
def console(folder):
    with served("--dir", folder.path) as found:
        found.entered = False
        yield found


@pytest.fixture(scope="module")
def browser(console):
    with chromium() as driver:
        driver.get(console.link)
        until(lambda: driver.current_url.endswith("/"), 10)
        console.base = driver.current_url.removesuffix("/")
        yield driver


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_complaint_and_runs_nothing_of_others(console, browser, path):
    browser.get(f"{console.base}{path}")
    until(lambda: browser.execute_script("return document.readyState") == "complete", 20)
    assert browser.find_elements("css selector", "main h1")
    assert browser.execute_script("return window.hacked") is None
    time.sleep(0.2)
    assert complaints(browser) == []
    foreign = browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name)"
        ".filter(n => !n.startsWith(location.origin))"
    )
    assert foreign == []


@pytest.mark.parametrize(
    "path", ["/messages?topic=hostile&from=beginning", "/groups", "/message?topic=hostile&offset=0",
             "/messages?topic=hostile&live=1"]
)  # fmt: skip
def test_hostile_text_is_seen_as_text(console, browser, path):
    browser.get(f"{console.base}{path}")
    until(lambda: SHOWN in browser.find_element("tag name", "main").text, 20)
    assert browser.execute_script("return window.hacked") is None
    assert browser.find_elements("css selector", "main img, main script") == []
    assert complaints(browser) == []


def test_another_port_of_localhost_gets_no_cookie(console, browser):
    """Cookies know no ports: whoever listens on another one must not get the session by a page."""
    seen = []

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers.get("Cookie", "")))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            if self.path == "/":
                self.wfile.write(b"<link rel=icon href=data:,><img src=/x>")
                self.wfile.write(b"<script>fetch('/s/guess/topics')</script>")

        def log_message(self, *_words):
            pass

    browser.get(f"{console.base}/topics")
    assert browser.find_elements("css selector", "main h1"), "there is a session"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        browser.get(f"http://localhost:{other.server_port}/")
        until(lambda: {path for path, _ in seen} >= {"/", "/x", "/s/guess/topics"}, 20)
        other.shutdown()
    assert {cookie for _, cookie in seen} == {""}


def test_a_kill_is_seen_within_a_second_without_a_reload(console, browser, folder):
    browser.get(f"{console.base}/")
    until(lambda: "live" in browser.find_element("id", "live-state").text, 10)
    browser.execute_script("window.loaded = 1")
    rows = "#brokers tbody tr"
    until(lambda: len(browser.find_elements("css selector", rows)) == 3, 20)
    from ottla.local.processes import send_signal

    victim = folder.existing().broker(2)
    send_signal(victim.process, 9)
    began = time.monotonic()
    until(lambda: "down" in browser.find_element("id", "brokers").text, 5)
    took = time.monotonic() - began
    assert took < 1.0, took
    until(lambda: "broker 2 is gone" in browser.find_element("id", "events").text, 10)
    assert browser.execute_script("return window.loaded") == 1
    assert ottla("broker", "start", "2", "--dir", folder.path).returncode == 0
    until(lambda: "down" not in browser.find_element("id", "brokers").text, 20)
    assert complaints(browser) == []


def test_a_topic_is_live(console, browser):
    browser.get(f"{console.base}/topic?name=orders")
    until(lambda: "live" in browser.find_element("id", "live-state").text, 10)

    def end():  # in one step: an element that was found may be replaced before it is read
        of = "#partitions tbody td:nth-child(7)"
        return browser.execute_script(f"return document.querySelector('{of}').textContent")

    before = end()
    fields = {"topic": "orders", "partition": "0", "value": "x", "do": "1"}
    browser.execute_script(
        "const form = new URLSearchParams(arguments[0]);"
        "form.set('form_token', document.querySelector('[name=form_token]').value);"
        "fetch(arguments[1], {method: 'POST', body: form})",
        fields, f"{console.base}/produce",
    )  # fmt: skip
    until(lambda: end() != before, 10)
    assert int(end()) == int(before) + 1
    assert complaints(browser) == []


def searched(folder):
    """Fill a topic so that a search in it takes seconds."""
    producer = Producer(
        {"bootstrap.servers": folder.bootstrap(), "compression.type": "lz4", "linger.ms": 50,
         "batch.size": 100_000, "allow.auto.create.topics": True,
         "queue.buffering.max.messages": 100_000}
    )  # fmt: skip
    for number in range(400_000):
        while True:
            try:
                producer.produce("searched", HOSTILE if number % 4000 == 1 else "straw")
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def test_a_search_goes_on_live_and_can_be_stopped(console, browser, folder):
    searched(folder)
    url = f"{console.base}/messages?topic=searched&from=beginning&q=onerror"
    counts = set()

    def shown():
        line = browser.find_element("id", "progress").text
        counts.add(line.partition(" record")[0])
        return line

    browser.get(url)
    until(lambda: "so far" not in shown(), 70)
    assert len(counts) > 2, "records come as they are found"
    assert shown().startswith("100 records; 400,000 searched")
    rows = browser.find_elements("css selector", "tbody tr")
    assert len(rows) == 100
    assert SHOWN in rows[99].text
    assert browser.execute_script("return window.hacked") is None
    assert not browser.find_element("css selector", "[data-stop]").is_displayed()
    time.sleep(4)  # a browser would try again after three
    assert len(browser.find_elements("css selector", "tbody tr")) == 100
    assert browser.find_element("id", "live-state").text == ""
    browser.get(url)
    stop = browser.find_element("css selector", "[data-stop]")
    until(stop.is_displayed, 10)
    stop.click()
    assert "Stopped. Continue from there" in shown()
    assert "Continue" in browser.execute_script("return document.activeElement.textContent")
    script = axe_script()
    assert script is None or violations(browser, script) == []
    before = shown()
    time.sleep(1)
    assert shown() == before
    found = len(browser.find_elements("css selector", "tbody tr"))
    assert found < 100
    browser.find_element("css selector", "[data-stopped] a").click()
    until(lambda: "so far" not in shown() and "searched" in shown(), 70)
    assert found + len(browser.find_elements("css selector", "tbody tr")) == 100
    assert complaints(browser) == []


def test_the_lag_of_a_group_is_live_and_its_table_stays_unfolded(console, browser):
    browser.get(f"{console.base}/group?name=readers")
    until(lambda: "live" in browser.find_element("id", "live-state").text, 10)
    # In one step: an element that was found may be replaced before it is clicked.
    unfold = "const s = document.querySelector('#history summary'); s.focus(); s.click()"
    browser.execute_script(unfold)
    browser.execute_script("window.line = document.querySelector('#history path.total')")
    until(lambda: browser.execute_script("return !window.line.isConnected"), 20)
    assert browser.find_element("css selector", "#history details table").is_displayed()
    focus = "return document.activeElement.tagName"
    assert browser.execute_script(focus) == "SUMMARY", "the focus is where it was"
    drawn = (
        "return [...document.querySelectorAll('#history .plot path.line')].map(p => p.getBBox())"
    )
    until(lambda: browser.execute_script(drawn)[0]["width"] > 0, 20)
    color = "return getComputedStyle(document.querySelector('.plot path.total')).stroke"
    assert browser.execute_script(color) == "rgb(28, 28, 28)", "the style sheet holds"
    assert complaints(browser) == []


def test_a_value_of_1_mib_is_shown(console, browser):
    browser.get(f"{console.base}/message?topic=hostile&partition=0&offset=4")
    seen = "return document.querySelector('.whole pre').textContent.length"
    assert browser.execute_script(seen) == MIB
    assert "1.0 MiB" in browser.find_element("css selector", ".cards").text
    browser.get(f"{console.base}/messages?topic=hostile&from=beginning")
    assert "1.0 MiB, first" in browser.find_element("tag name", "main").text
    assert complaints(browser) == []


def test_a_record_of_1_mib_is_written(console, browser, folder):
    browser.get(f"{console.base}/produce?topic=hostile")
    browser.execute_script(
        "document.getElementById('value').value = 'y'.repeat(arguments[0]);"
        "document.querySelector('[name=key]').value = arguments[1]", MIB - 3, "key"
    )  # fmt: skip
    browser.find_element("css selector", "main form:last-of-type button").click()
    until(lambda: browser.find_elements("css selector", "button.do"), 20)
    assert "Value, 1,024.0 KiB" in browser.find_element("css selector", ".card").text
    browser.find_element("css selector", "button.do").click()
    until(lambda: "/messages" in browser.current_url, 20)
    consumer = Consumer(
        {"bootstrap.servers": folder.bootstrap(), "group.id": "reads", "fetch.max.bytes": 3_000_000}
    )
    consumer.assign([TopicPartition("hostile", 0, 5)])
    written = consumer.poll(30)
    consumer.close()
    assert (written.key(), written.value()) == (b"key", b"y" * (MIB - 3))
    assert complaints(browser) == []


def deed(browser, console, name, words, broker=1, timeout_s=40):
    """Have something done to a broker by its button and its preview's."""
    browser.get(f"{console.base}/chaos")
    option = f"select[name=broker] option:nth-child({broker + 1})"
    form = f"form:has([name=deed][value={name}])"
    if name != "heal":
        browser.find_element("css selector", f"{form} {option}").click()
    browser.find_element(
        "css selector", f"{form} button[value={name}], {form} button:only-of-type"
    ).click()
    agree(browser)
    until(lambda: words in browser.find_element("id", "deeds").text, timeout_s)
    until(lambda: "in progress" not in browser.find_element("id", "deeds").text, timeout_s)


def test_chaos_by_its_buttons_with_a_clients_view(console, browser, folder):
    browser.get(f"{console.base}/chaos")
    browser.find_element("css selector", "form[action$='/chaos/probe'] button").click()
    agree(browser)
    until(lambda: browser.find_elements("css selector", ".strip rect.quick"), 20)
    browser.execute_script(
        "window.link = document.querySelector('#brokers tbody a'); window.link.focus()"
    )
    until(lambda: browser.execute_script("return !window.link.isConnected"), 20)
    focus = "return document.activeElement.getAttribute('href')"
    assert browser.execute_script(focus).endswith("/broker?id=0"), "the focus is where it was"
    deed(browser, console, "kill", "broker 1 killed")
    deed(browser, console, "start", "broker 1 started")
    deed(browser, console, "pause", "broker 1 paused")
    deed(browser, console, "resume", "broker 1 resumed")
    deed(browser, console, "restart", "broker 1 restarted", timeout_s=80)
    deed(browser, console, "stop", "broker 1 stopped")
    deed(browser, console, "start", "broker 1 started")
    deed(browser, console, "cut", "broker 1 is cut from broker 0, broker 2, ZooKeeper")
    until(lambda: "cut off from" in browser.find_element("id", "cuts").text, 10)
    zookeeper = KazooClient(folder.existing().zookeeper.address)
    zookeeper.start(30)
    try:
        until(lambda: zookeeper.exists("/brokers/ids/1") is None, 40)  # its session is over
        assert folder.existing().broker(1).running
        deed(browser, console, "heal", "healed")
        until(lambda: "cut off from" not in browser.find_element("id", "cuts").text, 10)
        until(lambda: zookeeper.exists("/brokers/ids/1"), 40)
    finally:
        zookeeper.stop()
        zookeeper.close()
    assert complaints(browser) == []


def test_a_record_is_written_by_keyboard_alone(console, browser):
    from selenium.webdriver.common.keys import Keys

    browser.get(f"{console.base}/topics")
    browser.switch_to.active_element.send_keys("/")
    browser.switch_to.active_element.send_keys("orders", Keys.ENTER)
    until(lambda: "q=orders" in browser.current_url, 10)
    browser.get(f"{console.base}/produce?topic=orders")
    field = browser.find_element("id", "value")
    field.send_keys("typed & <b>shown</b>")
    browser.find_element("css selector", "main form button").send_keys(Keys.ENTER)
    until(lambda: "Record to produce" in browser.page_source, 10)
    assert "typed & <b>shown</b>" in browser.find_element("css selector", ".card").text
    browser.find_element("css selector", "button.do").send_keys(Keys.ENTER)
    until(lambda: "/messages" in browser.current_url, 20)
    assert "typed & <b>shown</b>" in browser.find_element("tag name", "main").text


def decided(browser):
    """Return what is shown beside the picture of why: the names of the facts, and the facts."""
    box = browser.find_element("id", "chosen")
    if not box.is_displayed():
        return None
    read = (
        "return [...document.querySelectorAll('#chosen dl > div')]"
        ".map(d => [...d.children].map(e => e.textContent))"
    )
    return dict(browser.execute_script(read))


def test_a_bar_of_why_tells_its_decision_by_click_and_by_keyboard(console, browser):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.get(f"{console.base}/why?partition=orders-0")
    bars = browser.find_elements("css selector", "svg#s a")
    assert len(bars) > 1, "a broker was killed"
    assert decided(browser) is None
    widest = max(bars, key=lambda bar: bar.rect["width"])
    widest.click()
    shown = decided(browser)
    row = browser.find_element("css selector", widest.get_dom_attribute("href"))
    cells = row.find_elements("css selector", "th, td")
    heads = row.find_elements("xpath", "../../thead//th")
    assert shown == {
        h.get_property("textContent"): c.get_property("textContent")
        for h, c in zip(heads, cells, strict=True)
    }
    assert {"Rule", "Rejected", "Why"} <= shown.keys()
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    assert decided(browser) is None
    assert browser.switch_to.active_element == widest, "the focus is where it was"
    ActionChains(browser).send_keys(Keys.HOME, Keys.ENTER).perform()
    first = decided(browser)
    assert browser.switch_to.active_element == bars[0]
    ActionChains(browser).send_keys(Keys.END, Keys.ENTER).perform()
    assert browser.switch_to.active_element == bars[-1]
    assert decided(browser) != first
    ActionChains(browser).send_keys(Keys.ARROW_LEFT).perform()
    assert browser.switch_to.active_element == bars[-2]
    assert browser.current_url.endswith("orders-0"), "nothing was loaded"
    script = axe_script()
    assert script is None or violations(browser, script) == []
    assert complaints(browser) == []


def test_a_bar_of_why_leads_to_its_row_without_script(console, browser):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(f"{console.base}/why?partition=orders-0")
        bars = browser.find_elements("css selector", "svg#s a")
        bar = max(bars, key=lambda bar: bar.rect["width"])
        place = bar.get_dom_attribute("href")
        bar.click()
        until(lambda: browser.current_url.endswith(place), 10)
        row = browser.find_element("css selector", f"tr:target{place}")
        assert row.rect["height"] > 0
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize(
    "path",
    ["/topics", "/messages?topic=orders&from=beginning", "/produce?topic=orders", "/doctor",
     "/settings?kind=topic&name=orders", "/users", "/whatif?broker=1", "/why?partition=orders-0"],
)  # fmt: skip
def test_tab_goes_through_all_controls_in_the_order_of_the_page(console, browser, path):
    browser.get(f"{console.base}{path}")
    wanted, got = tab_order(browser)
    assert got == wanted
    assert wanted[0].startswith("a Skip to the page")
    assert len(wanted) > 12


def test_the_picture_of_why_is_drawn_and_zoomed(console, browser):
    browser.get(f"{console.base}/why?partition=orders-0")
    assert browser.find_elements("css selector", "svg#s rect")
    seen = "return document.getElementById('s').getAttribute('viewBox')"
    before = browser.execute_script(seen)
    browser.find_element("id", "i").click()
    assert browser.execute_script(seen) != before
    assert complaints(browser) == []


@pytest.mark.parametrize("path", PAGES)
def test_a_phone_does_not_scroll_sideways(console, browser, path):
    with phone(browser):
        browser.get(f"{console.base}{path}")
        assert width(browser) <= 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_complain_about(console, browser, scheme):
    script = axe_script()
    if script is None:
        pytest.skip("axe-core is not installed: pip install --no-deps axe-playwright-python")
    set_scheme(browser, scheme)
    found = {}
    for path in PAGES:
        browser.get(f"{console.base}{path}")
        result = violations(browser, script)
        if result:
            found[path] = result
    assert found == {}
