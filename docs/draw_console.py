"""Draws docs/console-*.png: pages of `ottla console` on a real cluster, as Chromium shows them.

    python docs/draw_console.py

It starts three brokers, kills one and looks. Needs chromium, chromedriver and selenium (docs/TESTING.md).
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.browser import agree, chromium, why_not
from support.command_line import ottla
from support.console_process import served, up

DOCS = Path(__file__).parent
PICTURES = {
    "overview": ("/", 760),
    "chaos": ("/chaos", 900),
    "why": ("/why?partition=flights-0", 900),
}
"""Name: page, and how many points of it are shown."""
WIDTH = 1200


def main() -> int:
    missing = why_not()
    if missing:
        print(f"docs/draw_console.py: {missing}", file=sys.stderr)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="ottla-console-"))
    try:
        with up(folder / "data") as cluster, served("--dir", cluster.path) as console:
            where = ["--dir", cluster.path]
            ottla("topics", "create", "flights", "--assignment", "0:1:2,1:2:0,2:0:1", *where)
            with chromium(WIDTH, 800) as browser:
                browser.get(console.link)
                time.sleep(1)
                browser.get(f"http://{console.address}/chaos")
                browser.find_element("css selector", "form[action='/chaos/probe'] button").click()
                agree(browser)
                time.sleep(8)
                ottla("broker", "kill", "0", *where)
                time.sleep(8)
                for name, (page, height) in PICTURES.items():
                    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1}
                    browser.execute_cdp_cmd(
                        "Emulation.setDeviceMetricsOverride", {**size, "mobile": False}
                    )
                    browser.get(f"http://{console.address}{page}")
                    time.sleep(2)
                    for bar in browser.find_elements("css selector", "svg#s a")[-1:]:
                        bar.click()
                    browser.save_screenshot(str(DOCS / f"console-{name}.png"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
