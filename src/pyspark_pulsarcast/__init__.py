"""Lets Spark find `format("pulsarcast")` by itself: it looks for modules named `pyspark_...`."""

from pulsarcast.pipeline.topics.source import TopicSource as DefaultSource

__all__ = ["DefaultSource"]
