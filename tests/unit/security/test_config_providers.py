"""`config.providers`: what `${name:path:key}` becomes, and what is refused."""

import pytest

from ottla.broker.configs.dynamic_configs import BadDynamicConfigError, DynamicConfigs
from ottla.broker.process import load_config
from ottla.model.config import BrokerConfig
from ottla.model.errors import ConfigError
from ottla.security.config_providers import client_settings, resolved

KAFKAS = "org.apache.kafka.common.config.provider."
FILE = {"config.providers": "f", "config.providers.f.class": f"{KAFKAS}FileConfigProvider"}
DIRECTORY = {
    "config.providers": "d",
    "config.providers.d.class": f"{KAFKAS}DirectoryConfigProvider",
}
ENVIRONMENT = {
    "config.providers": "env",
    "config.providers.env.class": f"{KAFKAS}EnvVarConfigProvider",
}


@pytest.fixture
def secrets(tmp_path):
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "all.properties").write_bytes("alice=pä ss\nempty=\n".encode())
    (folder / "bob").write_text("two\nlines\n")
    return folder


def test_values_come_from_files_folders_and_the_environment(secrets, monkeypatch):
    monkeypatch.setenv("A_SECRET", "e")
    text = f"<${{f:{secrets}/all.properties:alice}}${{f:{secrets}/all.properties:empty}}>"
    assert resolved({**FILE, "k": text})[0]["k"] == "<pä ss>"
    assert resolved({**DIRECTORY, "k": f"${{d:{secrets}:bob}}"})[0]["k"] == "two\nlines\n"
    assert resolved({**ENVIRONMENT, "k": "x${env:A_SECRET}y"})[0]["k"] == "xey"


def test_other_references_stay_as_they_are():
    for settings in ({"k": "${f:a:b}"}, {**ENVIRONMENT, "k": "${f:a:b} ${x} $env"}):
        assert resolved(settings)[0] == settings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"config.providers": "f"}, "config.providers.f.class is missing"),
        ({**FILE, "config.providers.f.class": "com.example.Vault"}, "names a Java class"),
        ({**FILE, "k": "${f:{}/all.properties:carol}"}, "has no key carol"),
        ({**FILE, "k": "${f:{}/none:alice}"}, "No such file"),
        ({**FILE, "k": "${f:alice}"}, "the path is missing"),
        ({**DIRECTORY, "k": "${d:{}:carol}"}, "has no file carol"),
        ({**DIRECTORY, "k": "${d:{}/x:../bob}"}, "has no file ../bob"),
        ({**ENVIRONMENT, "k": "${env:NOT_SET_ANYWHERE}"}, "no environment variable"),
        ({**ENVIRONMENT, "k": "${env:a:HOME}"}, "have no path"),
        (
            {
                **ENVIRONMENT,
                "k": "${env:HOME}",
                "config.providers.env.param.allowlist.pattern": "X.*",
            },
            "does not allow HOME",
        ),
        (
            {**FILE, "k": "${f:{}/x/../../y:a}", "config.providers.f.param.allowed.paths": "{}"},
            "allowed.paths does not allow",
        ),
        (
            {**FILE, "config.providers.f.param.allowed.paths": "relative"},
            "must be an absolute path that exists",
        ),
    ],
)
def test_what_is_not_resolved_is_refused_in_one_line(secrets, settings, says):
    settings = {key: value.replace("{}", str(secrets)) for key, value in settings.items()}
    with pytest.raises(ConfigError) as caught:
        resolved(settings)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_from_elsewhere_is_in_no_message(tmp_path, secrets):
    (secrets / "number").write_text("tr0ub4dor")
    file = tmp_path / "server.properties"
    lines = {**DIRECTORY, "zookeeper.connect": "z:1", "broker.id": "0"}
    lines["num.io.threads"] = f"${{d:{secrets}:number}}"
    file.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
    with pytest.raises(ConfigError, match=r"Invalid value \[hidden\] for .*num.io.threads"):
        load_config(str(file), ())


def test_tools_resolve_their_settings_too(secrets):
    data = "".join(f"{k}={v}\n" for k, v in DIRECTORY.items()) + f"p=${{d:{secrets}:bob}}\n"
    assert client_settings(data.encode(), "client.properties")["p"] == "two\nlines"
    with pytest.raises(ConfigError, match=r"client.properties: p: .* has no file bo"):
        client_settings(data.replace(":bob", ":bo").encode(), "client.properties")


def test_a_dynamic_setting_does_not_refer_to_a_provider():
    static = {**FILE, "zookeeper.connect": "z:1", "broker.id": "0"}
    dynamic = DynamicConfigs(BrokerConfig(static), lambda _: None)
    for settings in (
        {"listener.name.x.ssl.keystore.location": "${f:/a:b}"},
        {"config.providers": "g"},
        {"config.providers.f.class": "x"},
    ):
        with pytest.raises(BadDynamicConfigError, match=r"^(References|Cannot update)"):
            dynamic.check(settings, per_broker=True)
