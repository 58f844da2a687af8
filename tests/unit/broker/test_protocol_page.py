"""docs/PROTOCOL.md says what the router's table says."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_current():
    spec = importlib.util.spec_from_file_location("list_protocol", DOCS / "list_protocol.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (DOCS / "PROTOCOL.md").read_text(encoding="utf-8")
    assert page == module.page(), "run: python docs/list_protocol.py"
