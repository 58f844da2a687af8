"""Settings as DescribeConfigs shows them: values, sources, synonyms."""

from ottla.broker.configs.config_entries import Source, Synonym, broker_entries, topic_entries
from ottla.model.config import BrokerConfig


def config(**extra):
    return BrokerConfig(
        {"zookeeper.connect": "z:1", "broker.id": "1"}
        | {k.replace("_", "."): v for k, v in extra.items()}
    )


def topic(name, overrides=None, **extra):
    return {e.name: e for e in topic_entries(config(**extra), overrides or {})}[name]


def broker(name, **extra):
    return {e.name: e for e in broker_entries(config(**extra))}[name]


def test_a_default_of_a_topic_names_the_broker_setting_behind_it():
    entry = topic("segment.bytes")
    assert (entry.value, entry.source, entry.read_only) == ("1073741824", 5, False)
    assert entry.synonyms == (Synonym("log.segment.bytes", "1073741824", Source.DEFAULT_CONFIG),)


def test_an_override_stands_before_the_synonyms():
    entry = topic("segment.bytes", {"segment.bytes": "1048576"}, log_segment_bytes="2097152")
    assert (entry.value, entry.source) == ("1048576", Source.TOPIC_CONFIG)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("segment.bytes", "1048576", 1),
        ("log.segment.bytes", "2097152", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]


def test_retention_from_hours_counts_as_default_like_the_jvms():
    entry = topic("retention.ms", log_retention_hours="1")
    assert (entry.value, entry.source, entry.synonyms) == ("3600000", Source.DEFAULT_CONFIG, ())


def test_values_are_printed_as_java_prints_them():
    entry = topic("unclean.leader.election.enable", {"unclean.leader.election.enable": "TRUE"})
    assert entry.value == "true"
    assert topic("cleanup.policy", {"cleanup.policy": "compact, delete"}).value == "compact,delete"
    assert topic("min.cleanable.dirty.ratio").value == "0.5"


def test_a_broker_setting_of_the_file_and_the_default():
    entry = broker("num.partitions", num_partitions="4")
    assert (entry.value, entry.source, entry.read_only) == ("4", 4, True)
    assert broker("num.partitions").source == Source.DEFAULT_CONFIG
    assert broker("log.retention.ms").value is None
    assert broker("log.retention.bytes").read_only is False


def test_passwords_and_unknown_settings_are_never_shown():
    entry = broker("ssl.key.password", ssl_key_password="secret")
    assert (entry.value, entry.sensitive) == (None, True)
    entry = broker("my.plugin.token", my_plugin_token="secret")
    assert (entry.value, entry.sensitive, entry.type_number) == (None, True, 0)
    assert all(s.value is None for s in entry.synonyms)
