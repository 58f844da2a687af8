"""What every fake of a client has beside its responses: short waits, and messages that are kept."""

import itertools
import random

from ottla.client.client import Patience
from ottla.model.waits import waiting
from ottla.net import runtime


class FakeClient:
    world = runtime.real_world(None)
    waiting = staticmethod(waiting)

    def patience(self, granted_s, longest_s=0.0):
        """Take each look at the clock for 0.02 s: what lasts is given up soon."""
        return Patience(itertools.count(step=0.02).__next__, random.Random(1), granted_s, 0.0005)

    async def refresh(self, topics):
        await self.metadata(topics)

    @property
    def said(self):
        """Return what people were told."""
        return self.__dict__.setdefault("_said", [])

    def say(self, text):
        self.said.append(text)
