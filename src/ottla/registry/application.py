"""Confluent's REST API as an ASGI application, as far as serializers and `confluent-kafka` ask.

Invariants: a request's body is bounded; every response is JSON, an error
`{"error_code": …, "message": …}`; a page of another host reaches nothing, by its Host or its body.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Container
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.model.errors import OttlaError
from ottla.net.host_header import is_allowed
from ottla.registry import formats
from ottla.registry.failures import RegistryError, subject_not_found
from ottla.registry.operations import Registry, asked_schema
from ottla.registry.state import TYPES, Schema, Version

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
MAX_BODY_BYTES = 2 * 1024 * 1024
MOST_LISTED = 10_000

Handler = Callable[[Request], Awaitable[Any]]


def application(registry: Registry, *, loopback: bool = True) -> Starlette:
    """Return the application; with `loopback` it serves localhost and IP addresses only."""
    api = _Api(registry)

    def route(path: str, **handlers: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                if loopback and not is_allowed(request.headers.get("host", ""), ()):
                    raise RegistryError(421, "requests for localhost and IP addresses only")
                return _json(await handlers[request.method.lower()](request))
            except RegistryError as error:
                return _json(_error(error.code, str(error)), error.status)
            except OttlaError as error:
                return _json(_error(50001, f"Error in the backend data store: {error}"), 500)

        methods = [name.upper() for name in handlers]
        return Route(path, endpoint, methods=methods)

    subject, version = "/subjects/{subject}", "/subjects/{subject}/versions/{version}"
    routes = [
        route("/", get=api.root),
        route("/subjects", get=api.subjects),
        route(subject, post=api.lookup, delete=api.delete_subject),
        route(f"{subject}/versions", get=api.versions, post=api.register),
        route(version, get=api.version, delete=api.delete_version),
        route(f"{version}/schema", get=api.text_of_version),
        route(f"{version}/referencedby", get=api.referring),
        route("/schemas", get=api.schemas),
        route("/schemas/types", get=api.types),
        route("/schemas/ids/{id}", get=api.of_id),
        route("/schemas/ids/{id}/schema", get=api.text_of_id),
        route("/schemas/ids/{id}/subjects", get=api.subjects_of_id),
        route("/schemas/ids/{id}/versions", get=api.versions_of_id),
        route("/compatibility/subjects/{subject}/versions", post=api.compatible),
        route("/compatibility/subjects/{subject}/versions/{version}", post=api.compatible),
        route("/config", get=api.level, put=api.set_level, delete=api.unset_level),
        route("/config/{subject}", get=api.level, put=api.set_level, delete=api.unset_level),
        route("/mode", get=api.mode, put=api.set_mode),
        route("/mode/{subject}", get=api.mode, put=api.set_mode, delete=api.unset_mode),
        route("/contexts", get=api.contexts),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _refused, 500: _failed})


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}


def _json(found: Any, status: int = 200) -> Response:
    if isinstance(found, Response):
        return found
    return JSONResponse(found, status, media_type=CONTENT_TYPE)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json(_error(error.status_code, f"HTTP {error.status_code} {error.detail}"),
                 error.status_code)  # fmt: skip


async def _failed(_request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return _json(_error(50001, "Error in the registry, see its log"), 500)


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


async def _body(request: Request) -> dict[str, Any]:
    if "json" not in request.headers.get("content-type", ""):
        raise RegistryError(415, f"HTTP 415 Unsupported Media Type: send {CONTENT_TYPE}")
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > MAX_BODY_BYTES:
            raise RegistryError(413, f"a request of more than {MAX_BODY_BYTES} bytes")
    try:
        found = json.loads(bytes(received))
    except ValueError as error:
        raise RegistryError(400, f"the request is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise RegistryError(400, "the request is no JSON object")
    return found


class _Api:
    """The handlers; each returns what becomes JSON."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._state = registry.state

    async def root(self, _request: Request) -> Any:
        return {}

    async def types(self, _request: Request) -> Any:
        return list(TYPES)

    async def contexts(self, _request: Request) -> Any:
        return ["."]

    # -- subjects and versions ------------------------------------------------------------------

    async def subjects(self, request: Request) -> Any:
        prefix = request.query_params.get("subjectPrefix", "")
        deleted = _flag(request, "deleted") or _flag(request, "deletedOnly")
        return [
            name
            for name in sorted(self._state.subjects)
            if name.startswith(prefix.removeprefix(":*:"))
            and self._state.versions(name, deleted=deleted)
            and not (_flag(request, "deletedOnly") and self._state.versions(name))
        ]

    async def register(self, request: Request) -> Any:
        body = await _body(request)
        new = await self._registry.register(
            _subject(request), asked_schema(body), _number(body, "id"), _number(body, "version")
        )
        return {"id": new.id, "version": new.version, **new.schema.fields()}

    async def lookup(self, request: Request) -> Any:
        asked = asked_schema(await _body(request))
        return self._whole(
            self._registry.lookup(_subject(request), asked, deleted=_flag(request, "deleted"))
        )

    async def versions(self, request: Request) -> Any:
        found = self._state.versions(_subject(request), deleted=_flag(request, "deleted"))
        if not found:
            raise subject_not_found(_subject(request))
        return [one.version for one in found]

    def _version(self, request: Request) -> Version:
        return self._registry.version(
            _subject(request), request.path_params["version"], deleted=_flag(request, "deleted")
        )

    async def version(self, request: Request) -> Any:
        return self._whole(self._version(request), request.query_params.get("format", ""))

    async def text_of_version(self, request: Request) -> Any:
        return Response(self._version(request).schema.text, media_type=CONTENT_TYPE)

    async def referring(self, request: Request) -> Any:
        one = self._version(request)
        return sorted({v.id for v in self._state.referring(one.subject, one.version)})

    async def delete_version(self, request: Request) -> Any:
        return await self._registry.delete_version(
            _subject(request), request.path_params["version"], permanent=_flag(request, "permanent")
        )

    async def delete_subject(self, request: Request) -> Any:
        return await self._registry.delete_subject(
            _subject(request), permanent=_flag(request, "permanent")
        )

    def _whole(self, one: Version, wanted: str = "") -> dict[str, Any]:
        names = {"subject": one.subject, "version": one.version, "id": one.id}
        return {**names, **self._formatted(one.schema, wanted)}

    def _formatted(self, schema: Schema, wanted: str) -> dict[str, Any]:
        found = schema.fields()
        if wanted == "serialized" and schema.kind == "PROTOBUF":
            found["schema"] = formats.serialized(schema.text, self._registry.resolved(schema))
        return found

    # -- ids ------------------------------------------------------------------------------------

    async def schemas(self, request: Request) -> Any:
        found = []
        for name in await self.subjects(request):
            versions = self._state.versions(name, deleted=_flag(request, "deleted"))
            found += versions[-1:] if _flag(request, "latestOnly") else versions
        return [self._whole(one) for one in found[:MOST_LISTED]]

    def _schema(self, request: Request) -> Schema:
        text = request.path_params["id"]
        known = self._state.schemas.get(int(text)) if text.isascii() and text.isdigit() else None
        if known is None:
            raise RegistryError(40403, f"Schema {text} not found")
        return known

    async def of_id(self, request: Request) -> Any:
        found = self._formatted(self._schema(request), request.query_params.get("format", ""))
        if _flag(request, "fetchMaxId"):
            found["maxId"] = max(self._state.schemas)
        return found

    async def text_of_id(self, request: Request) -> Any:
        return Response(self._schema(request).text, media_type=CONTENT_TYPE)

    def _of_id(self, request: Request) -> list[Version]:
        self._schema(request)
        schema_id = int(request.path_params["id"])
        return self._state.of_id(schema_id, deleted=_flag(request, "deleted"))

    async def subjects_of_id(self, request: Request) -> Any:
        return sorted({one.subject for one in self._of_id(request)})

    async def versions_of_id(self, request: Request) -> Any:
        return [{"subject": v.subject, "version": v.version} for v in self._of_id(request)]

    # -- compatibility, levels, modes -----------------------------------------------------------

    async def compatible(self, request: Request) -> Any:
        why = self._registry.compatible(
            _subject(request),
            request.path_params.get("version"),
            asked_schema(await _body(request)),
        )
        messages = {"messages": why} if _flag(request, "verbose") else {}
        return {"is_compatible": not why, **messages}

    async def level(self, request: Request) -> Any:
        subject = _configured(request, self._state.levels, 40408, "compatibility")
        return {"compatibilityLevel": self._state.level(subject)}

    async def set_level(self, request: Request) -> Any:
        level = (await _body(request)).get("compatibility")
        subject = request.path_params.get("subject")
        return {"compatibility": await self._registry.set_level(subject, str(level).upper())}

    async def unset_level(self, request: Request) -> Any:
        subject = request.path_params.get("subject")
        return {"compatibilityLevel": await self._registry.unset_level(subject)}

    async def mode(self, request: Request) -> Any:
        subject = _configured(request, self._state.modes, 40409, "mode")
        return {"mode": self._state.mode(subject)}

    async def set_mode(self, request: Request) -> Any:
        mode = str((await _body(request)).get("mode")).upper()
        subject = request.path_params.get("subject")
        force = _flag(request, "force")
        return {"mode": await self._registry.set_mode(subject, mode, force=force)}

    async def unset_mode(self, request: Request) -> Any:
        return {"mode": await self._registry.unset_mode(_subject(request))}


def _configured(request: Request, own: Container[str | None], code: int, what: str) -> str | None:
    """Return the subject of a path, None for the global one; an error if it has no such setting."""
    subject: str | None = request.path_params.get("subject")
    known = subject is None or subject in own
    if not known and not _flag(request, "defaultToGlobal"):
        raise RegistryError(
            code, f"Subject '{subject}' does not have subject-level {what} configured"
        )
    return subject


def _subject(request: Request) -> str:
    return str(request.path_params["subject"])


def _number(body: dict[str, Any], name: str) -> int:
    found = body.get(name)
    return found if type(found) is int else -1
