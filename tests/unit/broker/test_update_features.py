"""UpdateFeatures as a controller in ZooKeeper mode answers it: no feature is supported."""

import pytest

from ottla.broker.requests.cluster.update_features import (
    NOT_SUPPORTED,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    Update,
    judge,
)
from ottla.model.errors import ErrorCode
from ottla.wire.messages.cluster import ApiVersionsRequest, UpdateFeaturesRequest
from ottla.zookeeper.znodes import Features, decode_features

pytestmark = pytest.mark.timeout(60)

STANDING = {"f": 3}


@pytest.mark.parametrize(
    ("feature", "level", "kind", "says"),
    [
        ("", 1, UPGRADE, "can not be empty"),
        ("f", 1, 9, "unknown upgrade type"),
        ("f", 0, UPGRADE, "less than 1 without setting the SAFE"),
        ("g", 0, SAFE_DOWNGRADE, "delete non-existing"),
        ("f", 0, SAFE_DOWNGRADE, None),
        ("f", 0, UNSAFE_DOWNGRADE, None),
        ("f", 3, UPGRADE, "Can not upgrade a finalized feature from existing versionLevel:3"),
        ("f", 3, SAFE_DOWNGRADE, "Can not downgrade a finalized feature"),
        ("f", 2, UPGRADE, "without setting the downgradeType to SAFE"),
        ("f", 4, SAFE_DOWNGRADE, "can not be greater than existing versionLevel:3"),
        ("f", 2, SAFE_DOWNGRADE, NOT_SUPPORTED),
        ("f", 4, UPGRADE, NOT_SUPPORTED),
        ("g", 1, UPGRADE, NOT_SUPPORTED),
    ],
)
def test_the_errors_of_an_update(feature, level, kind, says):
    problem = judge(Update(feature, level, kind), STANDING)
    assert problem is says if says is None else says in problem


def update(scene, *updates, version=1, broker=1):
    r = UpdateFeaturesRequest
    rows = []
    for feature, level, kind in updates:
        row = r.FeatureUpdateKey(feature=feature, max_version_level=level)
        if version:
            row.upgrade_type = kind
        else:
            row.allow_downgrade = kind != UPGRADE
        rows.append(row)
    return scene.ask(broker, r(feature_updates=rows, timeout_ms=1000), version)


@pytest.mark.parametrize("version", [0, 1])
def test_a_feature_that_stands_is_taken_back(scene, version):
    scene.up(1)
    data = b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}'
    scene.znode("/feature").data = data
    answer = update(scene, ("f", 0, SAFE_DOWNGRADE), ("g", 1, UPGRADE), version=version)
    assert answer.error_code == ErrorCode.NONE
    told = {r.feature: (r.error_code, r.error_message) for r in answer.results}
    assert told == {"f": (ErrorCode.NONE, None), "g": (ErrorCode.INVALID_REQUEST, NOT_SUPPORTED)}
    assert decode_features(scene.znode("/feature").data) == Features(enabled=True, levels={})
    versions = scene.ask(1, ApiVersionsRequest("t", "1"), 3)
    assert versions.finalized_features_epoch == 1
    assert 57 in {v.api_key for v in versions.api_keys}


def test_what_changes_nothing_is_not_written(scene):
    scene.up(1)
    before = scene.znode("/feature").data
    answer = update(scene, ("f", 1, UPGRADE), ("f", 2, UPGRADE))
    assert [(r.feature, r.error_code) for r in answer.results] == [("f", ErrorCode.INVALID_REQUEST)]
    assert scene.znode("/feature").data is before


def test_only_the_controller_gets_the_request(scene):
    scene.up(1)
    scene.up(2)
    answer = update(scene, ("f", 1, UPGRADE), broker=2)
    assert (answer.error_code, answer.results) == (ErrorCode.NOT_CONTROLLER, [])
    assert answer.error_message == "This is not the correct controller for this cluster."
