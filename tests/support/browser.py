"""Chromium without a window, driven by selenium; both are optional and skipped with a reason."""

import importlib.util
import shutil
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
