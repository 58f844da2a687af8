"""Chromium without a window, driven by selenium; both are optional and skipped with a reason."""

import importlib.util
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import pytest


def why_not():
    """Return what is missing for a browser, None if nothing is."""
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed: pip install selenium"
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed: apt-get install chromium chromium-driver"
    return None


@contextmanager
def chromium(width=1200, height=900, dark=False):
    """Yield a browser; the test is skipped where there is none."""
    missing = why_not()
    if missing:
        pytest.skip(missing)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for word in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--no-first-run", "--disable-extensions",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
    ):  # fmt: skip
        options.add_argument(word)
    if dark:
        options.add_argument("--force-dark-mode")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_page_load_timeout(30)
        # The window of a headless browser has a least width; the page's is set as a phone's is.
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        yield driver
    finally:
        driver.quit()


def axe_script():
    """Return axe-core, which checks accessibility; None where it is not installed."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        return None
    for file in sorted(Path(found.origin).parent.rglob("axe*.js")):
        return file.read_text(encoding="utf-8")
    return None


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


def agree(driver):
    """Press the button of the preview that is coming; return what the preview showed."""
    until(lambda: driver.find_elements("css selector", "main button.do"), 20)
    shown = driver.find_element("tag name", "main").text
    assert "Nothing has changed yet" in shown, shown
    button = driver.find_element("css selector", "main button.do")
    button.click()
    until(lambda: is_gone(button), 20)
    return shown


def is_gone(element):
    from selenium.common.exceptions import StaleElementReferenceException

    try:
        element.is_enabled()
    except StaleElementReferenceException:
        return True
    return False


def set_size(driver, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@contextmanager
def phone(driver):
    """Have the page as wide as that of a phone is, 360 points."""
    set_size(driver, 360, 740)
    try:
        yield
    finally:
        set_size(driver, 1200, 900)


def width(driver):
    return driver.execute_script("return document.documentElement.scrollWidth")


def set_scheme(driver, scheme):
    """Have the page `light` or `dark`, at once: amid a transition colours are neither's."""
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


NAMED = """
function named(e) {
  const text = (e.getAttribute('aria-label') || e.textContent || e.name || '').trim();
  return e.tagName.toLowerCase() + ' ' + text.replace(/\\s+/g, ' ').slice(0, 60);
}
"""
CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]"


def tab_order(driver, most=400):
    """Return the controls in the order of the page, and in that in which Tab reaches them."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    wanted = driver.execute_script(
        f"{NAMED} return [...document.querySelectorAll(arguments[0])].filter("
        "e => e.tabIndex >= 0 && !e.disabled && e.checkVisibility()).map(named)",
        CONTROLS,
    )
    assert len(wanted) <= most
    driver.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    got = []
    for _ in wanted:
        ActionChains(driver).send_keys(Keys.TAB).perform()
        got.append(driver.execute_script(f"{NAMED} return named(document.activeElement)"))
        ring = "const s = getComputedStyle(document.activeElement); return s.outlineStyle"
        if not got[-1].startswith(("a 20", "main")):  # a bar has a ring of its own
            assert driver.execute_script(ring) != "none", got[-1]
    return wanted, got
