"""Delegation tokens in ZooKeeper: their znodes and the notifications of their changes.

Invariants: a token's secret is not in its znode; one that cannot be read is reported and counts as
none (F41). Kafka: `DelegationTokenInfoZNode`, `DelegationTokenChangeNotificationSequenceZNode` and
`DelegationTokenManagerZk`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from ottla.security.delegation_tokens import Token
from ottla.security.principals import Principal
from ottla.zookeeper.access import Access
from ottla.zookeeper.errors import MalformedZnodeError, NoNodeError
from ottla.zookeeper.operations import Set
from ottla.zookeeper.watches import WatchCallback
from ottla.zookeeper.znodes import TOKEN_CHANGES, TOKENS, decode_json, desanitize, sanitize

CHANGE_PREFIX = "token_change_"
VERSION = 3


class _Token(msgspec.Struct):
    version: int
    owner: str
    renewers: list[str]
    issueTimestamp: int  # noqa: N815 - Kafka's key
    maxTimestamp: int  # noqa: N815
    expiryTimestamp: int  # noqa: N815
    tokenId: str  # noqa: N815
    tokenRequester: str | None = None  # noqa: N815


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
    if found.version >= VERSION and found.tokenRequester is not None:
        requester = _principal(path, found.tokenRequester)
    return Token(
        found.tokenId,
        owner,
        requester,
        tuple(_principal(path, renewer) for renewer in found.renewers),
        found.issueTimestamp,
        found.maxTimestamp,
        found.expiryTimestamp,
    )


def _principal(path: str, text: str) -> Principal:
    kind, colon, name = desanitize(text).partition(":")
    if not kind or not colon:
        raise MalformedZnodeError(path, "a principal without type")
    return Principal(kind, name)


class DelegationTokens(Access):
    """The store's part for them."""

    async def create_delegation_token_paths(self) -> None:
        for path in (TOKEN_CHANGES, TOKENS):
            await self.create_recursive(path, None, fail_if_exists=False)

    async def get_delegation_token_ids(self) -> list[str]:
        return await self.get_children(TOKENS)

    async def get_delegation_tokens(self, ids: Sequence[str]) -> dict[str, Token]:
        """Return those that exist and can be read."""
        found = {}
        paths = [f"{TOKENS}/{token_id}" for token_id in ids]
        for token_id, path, reply in zip(ids, paths, await self.get_many(paths), strict=True):
            try:
                if reply is not None:
                    found[token_id] = decode_token(path, reply[0])
            except MalformedZnodeError as error:
                self.ignore(error)
        return found

    async def set_or_create_delegation_token(self, token: Token) -> None:
        path, data = f"{TOKENS}/{token.id}", encode_token(token)
        try:
            await self.write(Set(path, data))
        except NoNodeError:
            if not await self.create_recursive(path, data, fail_if_exists=False):
                await self.write(Set(path, data))

    async def delete_delegation_token(self, token_id: str) -> None:
        await self.delete_recursive(f"{TOKENS}/{token_id}")

    async def create_token_change_notification(self, token_id: str) -> None:
        await self.create_sequential(f"{TOKEN_CHANGES}/{CHANGE_PREFIX}", token_id.encode())

    async def get_token_change_notifications(self, watch: WatchCallback | None = None) -> list[str]:
        """Return the notifications' names in order. `watch`: on the list."""
        return await self.get_children(TOKEN_CHANGES, watch)

    async def get_token_changes(self, names: Sequence[str]) -> list[tuple[str, str, int]]:
        """Return (name, token id, ctime in ms) of those that still exist, in order."""
        replies = await self.get_many([f"{TOKEN_CHANGES}/{name}" for name in names])
        return [
            (name, reply[0].decode(errors="replace"), reply[1].ctime)
            for name, reply in zip(names, replies, strict=True)
            if reply is not None
        ]

    async def delete_token_change_notifications(self, names: Iterable[str]) -> None:
        for name in names:
            await self.delete_recursive(f"{TOKEN_CHANGES}/{name}")
