"""The console in a real browser: every page, a kill, hostile text, a phone's width, the keyboard.

Chromium without a window, by selenium; skipped where they are not installed.
"""

import time

import pytest
from confluent_kafka import Consumer, Producer

from support.browser import axe_script, chromium, why_not
from support.console_process import served, up

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'\x1b[31m\u202e'
SHOWN = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'\\x1b[31m\\u202e'
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
        producer = Producer({"bootstrap.servers": bootstrap, "allow.auto.create.topics": True})
        for topic in ("orders", "hostile"):
            for _ in range(3):
                producer.produce(topic, HOSTILE, HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
        producer.produce("hostile", b"\xff\xfe\x00\x1b")
        producer.produce("hostile", b"x" * 900_000)
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
        yield driver


def until(condition, timeout_s):
    began = time.monotonic()
    while not (found := condition()):
        assert time.monotonic() - began < timeout_s
        time.sleep(0.02)
    return found


def complaints(driver):
    """Return what is in the browser's log but the status of pages that are no success."""
    return [
        line
        for line in driver.get_log("browser")
        if not ("Failed to load resource" in line["message"] and "status of 40" in line["message"])
    ]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_complaint_and_runs_nothing_of_others(console, browser, path):
    browser.get(f"http://{console.address}{path}")
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
    browser.get(f"http://{console.address}{path}")
    until(lambda: SHOWN in browser.find_element("tag name", "main").text, 20)
    assert browser.execute_script("return window.hacked") is None
    assert browser.find_elements("css selector", "main img, main script") == []
    assert complaints(browser) == []


def test_a_kill_is_seen_within_a_second_without_a_reload(console, browser, folder):
    browser.get(f"http://{console.address}/")
    until(lambda: "live" in browser.find_element("id", "live-state").text, 10)
    browser.execute_script("window.loaded = 1")
    rows = "#brokers tbody tr"
    until(lambda: len(browser.find_elements("css selector", rows)) == 3, 20)
    from ottla.admin.local.processes import send_signal

    victim = folder.existing().broker(2)
    send_signal(victim.process, 9)
    began = time.monotonic()
    until(lambda: "down" in browser.find_element("id", "brokers").text, 5)
    took = time.monotonic() - began
    assert took < 1.0, took
    until(lambda: "broker 2 is gone" in browser.find_element("id", "events").text, 10)
    assert browser.execute_script("return window.loaded") == 1
    from support.console_process import run

    assert run("broker", "start", "2", "--dir", folder.path).returncode == 0
    until(lambda: "down" not in browser.find_element("id", "brokers").text, 20)
    assert complaints(browser) == []


def test_a_topic_is_live(console, browser):
    browser.get(f"http://{console.address}/topic?name=orders")
    until(lambda: "live" in browser.find_element("id", "live-state").text, 10)

    def end():  # in one step: an element that was found may be replaced before it is read
        of = "#partitions tbody td:nth-child(7)"
        return browser.execute_script(f"return document.querySelector('{of}').textContent")

    before = end()
    fields = {"topic": "orders", "partition": "0", "value": "x", "do": "1"}
    browser.execute_script(
        "const form = new URLSearchParams(arguments[0]);"
        "form.set('form_token', document.querySelector('[name=form_token]').value);"
        "fetch('/produce', {method: 'POST', body: form})",
        fields,
    )
    until(lambda: end() != before, 10)
    assert int(end()) == int(before) + 1
    assert complaints(browser) == []


def violations(browser, script):
    """Return what axe-core finds on the page."""
    browser.execute_script(script)
    return browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "const known = new Set(axe.getRules().flatMap(r => r.tags));"
        "const wanted = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'].filter(t => known.has(t));"
        "axe.run(document, {runOnly: wanted})"
        ".then(r => done(r.violations.map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html)])),"
        " e => done(['failed', String(e)]))"
    )


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
    url = f"http://{console.address}/messages?topic=searched&from=beginning&q=onerror"
    counts = set()

    def shown():
        line = browser.find_element("id", "progress").text
        counts.add(line.partition(" record")[0])
        return line

    browser.get(url)
    until(lambda: "so far" not in shown(), 70)
    assert len(counts) > 2, "records come as they are found"
    assert shown().startswith("100 records; 400,000 looked at")
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
    assert "Stopped. Go on from there" in shown()
    assert "Go on" in browser.execute_script("return document.activeElement.textContent")
    script = axe_script()
    assert script is None or violations(browser, script) == []
    before = shown()
    time.sleep(1)
    assert shown() == before
    found = len(browser.find_elements("css selector", "tbody tr"))
    assert found < 100
    browser.find_element("css selector", "[data-stopped] a").click()
    until(lambda: "so far" not in shown() and "looked at" in shown(), 70)
    assert found + len(browser.find_elements("css selector", "tbody tr")) == 100
    assert complaints(browser) == []


def test_the_lag_of_a_group_is_live_and_its_table_stays_unfolded(console, browser):
    browser.get(f"http://{console.address}/group?name=readers")
    until(lambda: "live" in browser.find_element("id", "live-state").text, 10)
    browser.find_element("css selector", "#history summary").click()
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


def test_chaos_by_its_buttons_with_a_clients_view(console, browser, folder):
    browser.get(f"http://{console.address}/chaos")
    browser.find_element("css selector", "form[action='/chaos/probe'] button").click()
    until(lambda: browser.find_elements("css selector", ".strip rect.quick"), 20)
    browser.execute_script(
        "window.link = document.querySelector('#brokers tbody a'); window.link.focus()"
    )
    until(lambda: browser.execute_script("return !window.link.isConnected"), 20)
    focus = "return document.activeElement.getAttribute('href')"
    assert browser.execute_script(focus) == "/broker?id=0", "the focus is where it was"
    browser.find_element("css selector", "select[name=broker] option:nth-child(2)").click()
    browser.find_element("css selector", "button[value=kill]").click()
    until(lambda: "broker 1 killed" in browser.find_element("id", "deeds").text, 10)
    until(lambda: "goes on" not in browser.find_element("id", "deeds").text, 10)
    browser.find_element("css selector", "select[name=broker] option:nth-child(2)").click()
    browser.find_element("css selector", "button[value=start]").click()
    until(lambda: "broker 1 started" in browser.find_element("id", "deeds").text, 40)
    assert complaints(browser) == []


def test_a_record_is_written_by_keyboard_alone(console, browser):
    from selenium.webdriver.common.keys import Keys

    browser.get(f"http://{console.address}/topics")
    browser.switch_to.active_element.send_keys("/")
    browser.switch_to.active_element.send_keys("orders", Keys.ENTER)
    until(lambda: "q=orders" in browser.current_url, 10)
    browser.get(f"http://{console.address}/produce?topic=orders")
    field = browser.find_element("id", "value")
    field.send_keys("typed & <b>shown</b>")
    browser.find_element("css selector", "main form button").send_keys(Keys.ENTER)
    until(lambda: "This would be written" in browser.page_source, 10)
    assert "typed & <b>shown</b>" in browser.find_element("css selector", ".card").text
    browser.find_element("css selector", "button.do").send_keys(Keys.ENTER)
    until(lambda: "/messages" in browser.current_url, 20)
    assert "typed & <b>shown</b>" in browser.find_element("tag name", "main").text


def test_the_picture_of_why_is_drawn_and_zoomed(console, browser):
    browser.get(f"http://{console.address}/why?partition=orders-0")
    assert browser.find_elements("css selector", "svg#s rect")
    seen = "return document.getElementById('s').getAttribute('viewBox')"
    before = browser.execute_script(seen)
    browser.find_element("id", "i").click()
    assert browser.execute_script(seen) != before
    assert complaints(browser) == []


@pytest.mark.parametrize("path", PAGES)
def test_a_phone_does_not_scroll_sideways(console, browser, path):
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(f"http://{console.address}{path}")
        wide = browser.execute_script(
            "return [document.documentElement.scrollWidth, innerWidth, "
            "[...document.querySelectorAll('main *')].filter(e => !e.closest('.wide') && "
            "e.getBoundingClientRect().right > innerWidth + 1)"
            ".map(e => e.outerHTML.slice(0, 100))]"
        )
        assert wide[0] <= 360, wide
    finally:
        size = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_complain_about(console, browser, scheme):
    script = axe_script()
    if script is None:
        pytest.skip("axe-core is not installed: pip install axe-playwright-python")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    found = {}
    for path in PAGES:
        browser.get(f"http://{console.address}{path}")
        result = violations(browser, script)
        if result:
            found[path] = result
    assert found == {}
