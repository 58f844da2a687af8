"""Delegation tokens in ZooKeeper: their znodes and the notifications of their changes.

Invariants: a token's secret is not in its znode; one that cannot be read is reported and counts as
none (F41). Kafka: `DelegationTokenInfoZNode`, `DelegationTokenChangeNotificationSequenceZNode` and
`DelegationTokenManagerZk`.
"""

import re
from collections.abc import Sequence

import msgspec

from ottla.security.delegation_tokens import Token
from ottla.security.principals import Principal
from ottla.zookeeper.access import Access, Part
from ottla.zookeeper.errors import MalformedZnodeError
from ottla.zookeeper.notifications import Notifications
from ottla.zookeeper.znodes import TOKEN_CHANGES, TOKENS, decode_json, desanitize, sanitize

CHANGE_PREFIX = "token_change_"
VERSION = 3
_ID = re.compile(r"[\w.-]{1,200}", re.ASCII)


class _Token(msgspec.Struct, rename="camel"):
    version: int
    owner: str
    renewers: list[str]
    issue_timestamp: int
    max_timestamp: int
    expiry_timestamp: int
    token_id: str
    token_requester: str | None = None


def encode_token(token: Token) -> bytes:
    """Return a token as Kafka writes it, in version 3."""
    return msgspec.json.encode(
        {
            "version": VERSION,
            "owner": sanitize(str(token.owner)),
            "tokenRequester": sanitize(str(token.requester)),
            "renewers": [sanitize(str(renewer)) for renewer in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.id,
        }
    )


def decode_token(path: str, data: bytes) -> Token:
    """Return a token; MalformedZnodeError."""
    found = decode_json(_Token, path, data)
    if not 1 <= found.version <= VERSION:
        raise MalformedZnodeError(path, f"version {found.version}")
    owner = _principal(path, found.owner)
    requester = owner
    if found.version >= VERSION and found.token_requester is not None:
        requester = _principal(path, found.token_requester)
    return Token(
        found.token_id,
        owner,
        requester,
        tuple(_principal(path, renewer) for renewer in found.renewers),
        found.issue_timestamp,
        found.max_timestamp,
        found.expiry_timestamp,
    )


def _principal(path: str, text: str) -> Principal:
    kind, colon, name = desanitize(text).partition(":")
    if not kind or not colon:
        raise MalformedZnodeError(path, "a principal without type")
    return Principal(kind, name)


def _changed(name: str, data: bytes) -> str:
    token_id = data.decode(errors="replace")
    if not _ID.fullmatch(token_id):
        raise MalformedZnodeError(f"{TOKEN_CHANGES}/{name}", "not a token id")
    return token_id


class DelegationTokens(Part):
    """/delegation_token, by id."""

    def __init__(self, zk: Access) -> None:
        super().__init__(zk)
        self.changes = Notifications(zk, TOKEN_CHANGES, CHANGE_PREFIX, str.encode, _changed)
        """Each names a token's id."""

    async def create_paths(self) -> None:
        for path in (TOKEN_CHANGES, TOKENS):
            await self._zk.create_recursive(path, None, fail_if_exists=False)

    async def get_ids(self) -> list[str]:
        return await self._zk.get_children(TOKENS)

    async def get(self, ids: Sequence[str]) -> dict[str, Token]:
        """Return those that exist and can be read."""
        found = {}
        paths = [f"{TOKENS}/{token_id}" for token_id in ids]
        for token_id, path, reply in zip(ids, paths, await self._zk.get_many(paths), strict=True):
            token = reply and self._zk.decoded(decode_token, path, reply[0])
            if token is not None:
                found[token_id] = token
        return found

    async def set(self, token: Token) -> None:
        await self._zk.set_or_create(f"{TOKENS}/{token.id}", encode_token(token))

    async def delete(self, token_id: str) -> None:
        await self._zk.delete_recursive(f"{TOKENS}/{token_id}")
