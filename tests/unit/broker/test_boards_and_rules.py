"""deploy/: boards of Grafana and rules of Prometheus name only metrics and labels there are."""

import functools
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ottla.pipelines.lake import metrics as lake
from support.exported import exported

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
CASES = DEPLOY / "prometheus" / "rules_test.yml"
BOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
EVERYWHERE = {"job", "instance"}


@functools.cache
def rules():
    return [r for group in yaml.safe_load(RULES.read_text())["groups"] for r in group["rules"]]


def expressions():
    """Yield (where, expression) of all rules and boards."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    for path in BOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.name}: {panel['title']}", target["expr"]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{path.name}: ${variable['name']}", variable["query"]["query"]


SELECTOR = re.compile(r"\b((?:kafka|ottla|process)_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")


def problems(expression, known):
    """Return what an expression names that there is not."""
    without_texts = re.sub(r'"[^"]*"', '""', expression)
    found = []
    for name, matchers in SELECTOR.findall(re.sub(r"\b\w+:[\w:]+", "", without_texts)):
        if name not in known:
            found.append(name)
        else:
            labels = set(LABEL.findall(matchers))
            found += [f"{name}: {label}" for label in labels - known[name] - EVERYWHERE]
    return found


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_metrics_and_labels_exist(where, expression):
    assert not problems(expression, exported()), where
    assert re.search(r"(kafka|ottla|process)_|\bup\b", expression), where
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert set(re.findall(r"\b\w+:[\w:]+", re.sub(r'"[^"]*"', "", expression))) <= recorded


def test_the_check_finds_what_there_is_not():
    known = exported()
    assert problems("rate(kafka_no_such_total[5m])", known) == ["kafka_no_such_total"]
    assert problems('kafka_log_log_size{queue="q"}', known) == ["kafka_log_log_size: queue"]
    assert problems('sum(kafka_log_log_size{topic="t", job="j"}) > 1', known) == []
    assert problems("ottla_lake_lag > 0", known) == ["ottla_lake_lag"]
    assert problems('ottla_lake_lag_offsets{group="g"}', known) == ["ottla_lake_lag_offsets: group"]
    assert problems('ottla_lake_lag_offsets{topic="t"} > 0', known) == []


def test_the_lake_names_its_figures_as_the_check_has_them():
    figures = lake.Metrics()
    figures.update("t", dict.fromkeys(lake.HELP, 1))
    shown = [line for line in figures.text().splitlines() if not line.startswith("#")]
    assert shown == [f'{name}{{topic="t"}} 1' for name in exported() if "_lake_" in name]


def test_what_waits_for_the_lake_is_on_a_board_and_in_an_alert():
    named = [where for where, expression in expressions() if "ottla_lake_lag_offsets" in expression]
    assert {"OttlaLakeIsStuck", "OttlaLakeIsBehind"} <= set(named)
    assert any(where.startswith("groups.json") for where in named)


def test_each_alert_says_how_bad_it_is_and_what_to_do():
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) > 15
    for alert in alerts:
        assert alert["labels"]["severity"] in ("critical", "warning", "info"), alert
        assert set(alert["annotations"]) == {"summary", "description"}, alert
    assert len({alert["alert"] for alert in alerts}) == len(alerts)


def expectations(kind):
    """Return what `rules_test.yml` expects: "alert_rule_test" or "promql_expr_test"."""
    cases = yaml.safe_load(CASES.read_text())["tests"]
    return [expected for case in cases for expected in case.get(kind, ())]


def test_each_alert_fires_in_a_case_and_is_silent_in_another():
    """With the severity and the description of its rule: also where promtool is not."""
    fired = {}
    for expected in expectations("alert_rule_test"):
        fired.setdefault(expected["alertname"], []).append(expected["exp_alerts"])
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    assert set(fired) <= set(alerts)
    assert not [name for name in alerts if not any(fired.get(name, []))], "never fire"
    assert not [name for name in alerts if [] not in fired[name]], "never silent"
    for name, expected in fired.items():
        for one in (one for several in expected for one in several):
            annotations = alerts[name]["annotations"]
            assert one["exp_labels"]["severity"] == alerts[name]["labels"]["severity"], name
            assert one["exp_annotations"]["description"] == annotations["description"], name


def test_cases_name_the_order_of_the_groups():
    """promtool takes any order else, and alerts ask for what the first group records."""
    groups = [group["name"] for group in yaml.safe_load(RULES.read_text())["groups"]]
    assert yaml.safe_load(CASES.read_text())["group_eval_order"] == groups


def test_each_recording_rule_has_a_case_with_values():
    asked = {
        name
        for expected in expectations("promql_expr_test")
        if expected["exp_samples"]
        for name in re.findall(r"\b\w+:[\w:]+", expected["expr"])
    }
    assert {rule["record"] for rule in rules() if "record" in rule} == asked


def test_the_boards_are_those_that_are_written():
    path = DEPLOY / "grafana" / "write_boards.py"
    spec = importlib.util.spec_from_file_location("write_boards", path)
    writing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writing)
    assert {path.stem for path in BOARDS} == set(writing.BOARDS)
    for path in BOARDS:
        assert path.read_text() == writing.text(path.stem), (
            f"run: python {path.parent}/write_boards.py"
        )


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.name)
def test_the_panels_of_a_board_have_places_and_sources_of_their_own(path):
    panels = json.loads(path.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert {x for x, _ in taken} == set(range(24))
    assert all(t["expr"] for panel in panels for t in panel.get("targets", ()))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on this machine")
def test_promtool_accepts_the_rules_and_their_tests():
    """The alerts fire and stay silent as `rules_test.yml` says."""
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(
            ["promtool", *command], cwd=RULES.parent, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
