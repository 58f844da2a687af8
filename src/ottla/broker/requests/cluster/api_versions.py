"""ApiVersions: which requests this broker serves, read from the router's own table.

Invariants: lists exactly what is registered, so no client ever learns of an API that is not there.
Kafka: `KafkaApis.handleApiVersionsRequest` (KIP-511, KIP-584).
"""

import re

from ottla.broker.requests.access import Access
from ottla.broker.requests.api import Api, Parts
from ottla.broker.requests.responses import respond
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode
from ottla.model.ports import Buffer
from ottla.net.connection import UNKNOWN_SOFTWARE, Connection
from ottla.wire.apis import ApiKey
from ottla.wire.error_responses import error_response
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

FIRST_VERSION_WITH_SOFTWARE = 3
MOST_KEPT = 100
"""characters that are kept of what a client says of its software"""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def unsupported(header: RequestHeader) -> list[Buffer]:
    """Respond to a version we do not know: body version 0, and the range to try again with."""
    entry = ApiVersionsResponse.ApiVersion(
        api_key=ApiKey.API_VERSIONS,
        min_version=ApiVersionsRequest.MIN_VERSION,
        max_version=ApiVersionsRequest.MAX_VERSION,
    )
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[entry])
    oldest = RequestHeader(
        ApiKey.API_VERSIONS, 0, header.correlation_id, header.client_id, errors=header.errors
    )
    return respond(oldest, response)


def handle(
    server: BrokerServices,
    conn: Connection,
    header: RequestHeader,
    request: ApiVersionsRequest,
) -> Parts:
    if header.api_version >= FIRST_VERSION_WITH_SOFTWARE:
        software = request.client_software_name, request.client_software_version
        if not all(map(_SOFTWARE.fullmatch, software)):
            return respond(header, ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
        name, version = software
        conn.software = name[:MOST_KEPT], version[:MOST_KEPT]  # for as long as it is connected
    else:
        conn.software = UNKNOWN_SOFTWARE
    entries = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, low, high in server.served
    ]
    response = ApiVersionsResponse(api_keys=entries, finalized_features_epoch=server.features_epoch)
    return respond(header, response)


API_VERSIONS = Api(
    ApiVersionsRequest,
    handle,
    access=Access(open="a client has to know what it can ask for"),
    error=error_response(ApiVersionsResponse),
    respond_unsupported=unsupported,
)
