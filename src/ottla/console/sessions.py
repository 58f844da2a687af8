"""Who may use the console: links that let in once, sessions, and the tokens of forms.

Invariants: secrets are compared in constant time and kept in memory only; a link lets in once;
sessions are bounded in number and time.
"""

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

SESSION_S = 12 * 3600.0
MOST_SESSIONS = 16
SECRET_BYTES = 32
PLACE_BYTES = 16
PLACES = "/s/"


class Session(NamedTuple):
    """One browser that was let in. `form_token` stands in each form that it may send.

    `place`: the path of the only pages that the browser sends the cookie for. Cookies know no
    ports: to a page of any other server of localhost the browser sends those of its path, too.
    """

    key: str
    form_token: str
    place: str
    ends_s: float


class Sessions:
    """The sessions there are, and the token of the next link."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self.token = secrets.token_urlsafe(SECRET_BYTES)
        """Lets in the first browser that shows it."""

    def enter(self, token: str) -> Session | None:
        """Return a new session for the token of the link, which is another one from now on."""
        if not hmac.compare_digest(token.encode(errors="replace"), self.token.encode()):
            return None
        self.token = secrets.token_urlsafe(SECRET_BYTES)
        session = Session(
            secrets.token_urlsafe(SECRET_BYTES),
            secrets.token_urlsafe(SECRET_BYTES),
            PLACES + secrets.token_urlsafe(PLACE_BYTES),
            self._now_s() + SESSION_S,
        )
        self._sessions[session.key] = session
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def find(self, key: str, place: str = "") -> Session | None:
        """Return the session of a cookie, None if there is none, it is over or elsewhere."""
        found = None
        for session in self._sessions.values():  # all of them: no time tells how much was right
            if hmac.compare_digest(session.key.encode(), key.encode(errors="replace")):
                found = session
        if found is not None and self._now_s() >= found.ends_s:
            del self._sessions[found.key]
            return None
        return found if found is None or place in ("", found.place) else None

    def leave_all(self) -> None:
        """Sign out everywhere."""
        self._sessions.clear()


def form_is_of(session: Session, token: str) -> bool:
    """Return whether a form was made for this session."""
    return hmac.compare_digest(session.form_token.encode(), token.encode(errors="replace"))
