"""Durations: lengths of time as people type them.

Java: `java.time.Duration.parse`, which Kafka's tools use.
"""

import re

_TIMES = r"(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?"
_FORMS = (
    re.compile(rf"P(?:(?P<d>\d+)D)?(?:T(?=\d){_TIMES})?", re.ASCII),
    re.compile(rf"(?:(?P<d>\d+)D)?{_TIMES}", re.ASCII),
)
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def parse_duration(text: str) -> int:
    """Return the milliseconds of `P1DT2H30M`, as Kafka's tools take it, or of `1d2h30m`."""
    for form in _FORMS:
        found = form.fullmatch(text.upper())
        if found is not None and any(found.groups()):
            parts = found.groupdict()
            return round(sum(float(parts[u] or 0) * s for u, s in _SECONDS.items()) * 1000)
    raise ValueError(f"{text}: write it as P1DT2H or 1d2h, 30m, 90s")
