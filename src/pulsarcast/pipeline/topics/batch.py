"""Topics as a table: what a node keeps of them when a query first asks.

Spark asks a reader once for each `load()`, and keeps the answer. So a table is the same for all
queries of one DataFrame; and no filter is taken from Spark, which up to 4.3 would apply one query's
filter to the next one of the same DataFrame as well [m]. The options `topics`, `startingOffsets`,
`endingOffsets` and `where` say what to leave out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.topics.beginning import ending, starting
from pulsarcast.pipeline.topics.logs import TopicLogs, find_daemon
from pulsarcast.pipeline.topics.offsets import Span, refuse, split
from pulsarcast.pipeline.topics.options import EARLIEST, LATEST, ReadOptions
from pulsarcast.pipeline.topics.reading import Range, Wanted, filtered_range, read_range

_log = logging.getLogger(__name__)


class TopicReader(DataSourceReader):
    """Reads topics from one index to another."""

    def __init__(self, options: ReadOptions) -> None:
        if options.offsets_per_trigger_max is not None:
            _log.warning("maxOffsetsPerTrigger is for streams: a batch reads everything")
        starts = options.starting
        if starts == LATEST or (isinstance(starts, dict) and LATEST in starts.values()):
            raise LocalError(
                "startingOffsets: a batch that starts at the latest event would read nothing. "
                "Write earliest or an index, or read a stream"
            )
        self._options = options
        self._target = find_daemon(options.connection)

    def partitions(self) -> Sequence[InputPartition]:
        """What is there now, in pieces for one task each."""
        options = self._options
        wanted = EARLIEST if options.starting is None else options.starting
        logs = TopicLogs(self._target, options.topics)
        try:
            found = logs.find(from_start=True, is_strict=True, has_met=False)
            starts, losses = starting(found, wanted, logs.resolve)
            ends = ending(found, options.ending, logs.resolve)
        finally:
            logs.close()
        if options.fail_on_data_loss:
            refuse(losses)
        for loss in losses:
            _log.warning("%s. The query goes on %s", loss.reason, loss.goes_on)
        spans = [
            Span(topic, log.log, starts[topic], ends[topic])
            for topic, log in found.logs.items()
            if starts[topic] < ends[topic]
        ]
        pieces = split(spans, options.records_per_partition_max, options.partitions_min)
        return [filtered_range(each, found.logs[each.topic], options.where) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One partition; Spark makes one of its own where we have none."""
        if not isinstance(partition, Range):
            return iter(())
        options = self._options
        wanted = Wanted(self._target, options.fail_on_data_loss, options.headers, options.blocks)
        return read_range(wanted, partition)
