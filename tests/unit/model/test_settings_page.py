"""docs/SETTINGS.md is what the code says; each setting that a module reads has a sentence."""

import importlib.util
import re
from pathlib import Path

import pytest

from ottla.broker.configs.config_entries import DYNAMIC_ONLY_KEYS
from ottla.broker.configs.dynamic_configs import THREAD_COUNTS
from ottla.broker.configs.unsupported_configs import CLASSES, SWITCHES
from ottla.model.config_keys import TOPIC_SYNONYMS, broker_keys, our_keys, topic_keys

ROOT = Path(__file__).parents[3]
# What serves clients; the command line and Spark jobs set settings, they do not obey them.
ROOMS = (
    "broker",
    "controller",
    "coordinators",
    "log",
    "model",
    "net",
    "replication",
    "security",
    "wire",
    "zookeeper",
)
# Tables of names: a name in them says that the setting exists, not that it does something.
TABLES = {"config_keys.py", "config_entries.py", "dynamic_configs.py", "unsupported_configs.py"}

# Compared with another setting, as Kafka does, and without effect.
ONLY_CHECKED = {"log.cleaner.threads", "max.connections.per.ip.overrides"}


@pytest.fixture(scope="module")
def settings():
    path = ROOT / "docs" / "list_settings.py"
    spec = importlib.util.spec_from_file_location("list_settings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_by_some_module():
    """The settings that stand between quotes in a module that is no table."""
    found = set()
    for room in ROOMS:
        for path in (ROOT / "src" / "ottla" / room).rglob("*.py"):
            if path.name not in TABLES:
                found |= set(re.findall(r'"([a-z][a-z.]+)"', path.read_text(encoding="utf-8")))
    return found & {*broker_keys(), *our_keys(), *DYNAMIC_ONLY_KEYS}


def test_the_page_of_settings_is_what_the_code_says(settings):
    committed = settings.PAGE.read_text(encoding="utf-8")
    assert committed == settings.page(), "run: python docs/list_settings.py"


def test_each_setting_that_a_module_reads_has_a_sentence_and_no_other(settings):
    behind_topics = {broker for synonyms in TOPIC_SYNONYMS.values() for broker, _ in synonyms}
    refused = {*SWITCHES, *(name for name, (built_in, _) in CLASSES.items() if not built_in)}
    read = read_by_some_module() - refused - behind_topics - ONLY_CHECKED
    assert read == set(settings.BROKER)


def test_each_topic_setting_that_is_in_force_has_a_sentence_and_no_other(settings):
    assert {name for name in topic_keys() if settings.in_force(name)} == set(settings.TOPIC)


def test_each_setting_stands_on_the_page(settings):
    page = settings.page()
    names = {*broker_keys(), *topic_keys(), *our_keys(), *DYNAMIC_ONLY_KEYS, *THREAD_COUNTS}
    assert not [name for name in names if f"`{name}`" not in page and f"`{name}=true`" not in page]
