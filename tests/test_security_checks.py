"""What CI's checks of security find: planted findings, and a reason at each exception."""

import importlib.machinery
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.timeout(60)


def script(name):
    """Import a script, which has no suffix."""
    path = str(ROOT / "scripts" / name)
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_each_exception_from_bandit_names_its_check_and_a_reason():
    marked = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "# nosec" in line:
                marked.append(line)
                before, _, ids = line.partition("# nosec")
                where = f"{path}:{number}"
                assert re.fullmatch(r" B\d{3}(,B\d{3})*", ids), f"{where} names no check"
                assert re.search(r"# \S+.*\S", before), f"{where} has no reason before nosec"
    assert marked


@pytest.mark.parametrize(
    ("line", "check"),
    [
        ("import hashlib; hashlib.md5(b'x')", "B324"),
        ("password = 'of-the-admin'", "B105"),
        ("import subprocess; subprocess.run(text, shell=True)", "B602"),
        ("import ssl; ssl._create_unverified_context()", "B323"),
        ("eval(text)", "B307"),
    ],
)
def test_bandit_finds_what_is_planted(line, check, tmp_path):
    path = tmp_path / "planted.py"
    path.write_text(f"text = input()\n{line}\n")
    bandit = script("bandit")
    assert any(f": {check} " in found for found in bandit.checked(path)), bandit.checked(path)
    path.write_text(f"text = input()\n{line}  # a reason # nosec {check}\n")
    assert not [found for found in bandit.checked(path) if f": {check} " in found]


def test_what_bandit_skips_has_a_reason():
    assert all(len(why) > 20 for why in script("bandit").SKIPPED.values())


def test_dependencies_are_audited_or_it_is_said_that_they_are_not(monkeypatch, capsys):
    audit = script("audit-dependencies")
    packages = audit.runtime()
    assert {"msgspec", "cryptography", "starlette", "anyio", "pyspark"} <= set(packages)
    assert not {"pytest", "mkdocs", "ottla"} & set(packages)
    weak = {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
    sound = {"name": "b", "version": "1", "vulns": []}
    unknown = {"name": "c", "skip_reason": "not found"}
    for found, code, words in (
        ([weak, sound], 1, "a 1: CVE-1, mended in 2"),
        ([sound, unknown], 0, "1 of 3 runtime dependencies audited, 0 weaknesses"),
        ([unknown], 0, "were not audited"),
        (None, 0, "were not audited"),
    ):
        got, lines = audit.reported({"a": "1", "b": "1", "c": "1"}, found)
        assert (got, words in "\n".join(lines)) == (code, True), lines
    assert len(audit.reported({}, None)[1]) == 1

    def answer(command, **_):
        assert command[:3] == [sys.executable, "-m", "pip_audit"]
        return subprocess.CompletedProcess(command, 1, json.dumps({"dependencies": [weak]}), "")

    monkeypatch.setattr(audit.subprocess, "run", answer)
    assert audit.main() == 1
    assert "CVE-1" in capsys.readouterr().out
