"""What every fake of a client has beside its responses: waits that nobody is told of, messages."""

from ottla.model.waits import waiting


class FakeClient:
    waiting = staticmethod(waiting)

    @property
    def said(self):
        """Return what people were told."""
        return self.__dict__.setdefault("_said", [])

    def say(self, text):
        self.said.append(text)
