"""docs/AUTHORIZATION.md says what the entries of the APIs say."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_current():
    spec = importlib.util.spec_from_file_location(
        "list_authorization", DOCS / "list_authorization.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (DOCS / "AUTHORIZATION.md").read_text(encoding="utf-8")
    assert page == module.page(), "run: python docs/list_authorization.py"
