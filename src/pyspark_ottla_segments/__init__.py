"""Lets Spark find `format("ottla-segments")` by itself: it imports packages named pyspark_*."""

from ottla.pipelines.segments.source import SegmentsSource


class DefaultSource(SegmentsSource):
    """What Spark looks for in such a package."""
