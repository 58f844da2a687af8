"""UpdateFeatures: levels of features finalized or taken back, by the broker that is the controller.

Brokers in ZooKeeper mode support no features of their own, so no level can be set; one that stands
in /feature can be taken back. Invariants: /feature is written once per request, only if it changes,
over the very version that was judged; `validate_only` is ignored, as Kafka's ZooKeeper mode ignores
it. Kafka: `KafkaApis.handleUpdateFeatures` and `KafkaController.processFeatureUpdates` (KIP-584).
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.requests.access import on_cluster
from ottla.broker.requests.api import Api, Later, Parts
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ports import Buffer
from ottla.net.connection import Connection
from ottla.security.acls import ALTER
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.cluster import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.zookeeper.znodes import Features

logger = logging.getLogger(__name__)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
FIRST_VERSION_WITH_TYPES = 1

NOT_SUPPORTED = (
    "Could not apply finalized feature update because the provided feature is not supported."
)
FAILED = "Unable to update finalized features due to an unexpected server error."


class Update(NamedTuple):
    """What is asked of one feature."""

    feature: str
    level: int
    kind: int


def handle(
    server: BrokerServices, conn: Connection, header: RequestHeader, request: UpdateFeaturesRequest
) -> Parts | Later:
    if not server.controller.is_active:
        return _refused(
            header,
            ErrorCode.NOT_CONTROLLER,
            "This is not the correct controller for this cluster.",
        )
    return _update(server, header, request)


def _refused(header: RequestHeader, code: ErrorCode, message: str) -> list[Buffer]:
    return respond(header, UpdateFeaturesResponse(error_code=code, error_message=message))


async def _update(
    server: BrokerServices, header: RequestHeader, request: UpdateFeaturesRequest
) -> list[Buffer]:
    found = await server.session.store.cluster.get_features()
    levels = {} if found is None else dict(found[0].levels)
    errors: dict[str, tuple[ErrorCode, str | None]] = {}
    target = dict(levels)
    for update in wanted(request, header.api_version):
        problem = judge(update, levels)
        if problem is None:
            target.pop(update.feature, None)
            errors[update.feature] = (ErrorCode.NONE, None)
        else:
            errors[update.feature] = (ErrorCode.INVALID_REQUEST, problem)
    if target != levels and found is not None:
        try:
            server.features_epoch = await server.session.store.cluster.update_features(
                Features(enabled=True, levels=target), found[1]
            )
        except OttlaError as error:
            logger.warning("features not updated error=%s", error)
            failed = (ErrorCode.FEATURE_UPDATE_FAILED, FAILED)
            errors = {n: failed if e[0] is ErrorCode.NONE else e for n, e in errors.items()}
    results = [
        UpdateFeaturesResponse.UpdatableFeatureResult(
            feature=name, error_code=code, error_message=message
        )
        for name, (code, message) in errors.items()
    ]
    return respond(header, UpdateFeaturesResponse(error_message=None, results=results))


def wanted(request: UpdateFeaturesRequest, version: int) -> list[Update]:
    """Return what is asked of each feature; of one named twice, what was said first."""
    updates: dict[str, Update] = {}
    for item in request.feature_updates:
        kind = SAFE_DOWNGRADE if item.allow_downgrade else UPGRADE
        if version >= FIRST_VERSION_WITH_TYPES:
            kind = item.upgrade_type
        updates.setdefault(item.feature, Update(item.feature, item.max_version_level, kind))
    return list(updates.values())


def judge(update: Update, levels: Mapping[str, int]) -> str | None:
    """Return why an update cannot be made; None for a feature that is to be taken back."""
    level, kind = update.level, update.kind
    standing = levels.get(update.feature)
    problem: str | None = NOT_SUPPORTED
    if not update.feature:
        problem = "Feature name can not be empty."
    elif kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        problem = "Received unknown upgrade type."
    elif level < 1 and kind != UPGRADE:
        problem = None if standing is not None else "Can not delete non-existing finalized feature."
    elif level < 1:
        problem = (
            f"Can not provide versionLevel: {level} less than 1 without setting the SAFE "
            "downgradeType in the request."
        )
    elif standing is not None and level == standing:
        direction = "downgrade" if kind == SAFE_DOWNGRADE else "upgrade"
        problem = (
            f"Can not {direction} a finalized feature from existing versionLevel:{standing} to the "
            "same value."
        )
    elif standing is not None and level < standing and kind != SAFE_DOWNGRADE:
        problem = (
            f"Can not downgrade finalized feature from existing versionLevel:{standing} to "
            f"provided versionLevel:{level} without setting the downgradeType to SAFE in the "
            "request."
        )
    elif standing is not None and level > standing and kind != UPGRADE:
        problem = (
            "When the downgradeType is set to SAFE in the request, the provided "
            f"versionLevel:{level} can not be greater than existing versionLevel:{standing}."
        )
    return problem


UPDATE_FEATURES = Api(
    UpdateFeaturesRequest,
    handle,
    access=on_cluster(ALTER),
    error=error_response(UpdateFeaturesResponse),
)
