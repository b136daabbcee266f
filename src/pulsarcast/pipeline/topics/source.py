"""`format("pulsarcast")`: topics for Spark's `read`, `readStream`, `write` and `writeStream`.

Whenever Spark looks for a data source it imports this module, in every program on a machine where
we are installed. So it imports little, and what it may lack only where it is used.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.topics.options import ReadOptions, Secret, read_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class TopicSource(DataSource):
    """Topics of one daemon."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # In place: Spark holds the same map, and may print it when something fails.
        if "token" in options:
            options["token"] = Secret(options["token"])
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """What users write in `format`."""
        return "pulsarcast"

    def schema(self) -> StructType:
        """The columns, with those that were asked for."""
        from pulsarcast.pipeline.topics.schema import spark_schema  # noqa: PLC0415

        options = read_options(self.options)
        return spark_schema(headers=options.headers, blocks=options.blocks)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        from pulsarcast.pipeline.topics.batch import TopicReader  # noqa: PLC0415

        return TopicReader(self._read_options(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        from pulsarcast.pipeline.topics.stream import TopicStreamReader  # noqa: PLC0415

        return TopicStreamReader(self._read_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from pulsarcast.pipeline.topics.sink import make_writer  # noqa: PLC0415

        return make_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        from pulsarcast.pipeline.topics.sink import make_stream_writer  # noqa: PLC0415

        return make_stream_writer(self.options, schema, overwrite)

    def _read_options(self, schema: StructType) -> ReadOptions:
        from pulsarcast.pipeline.topics.schema import spark_schema  # noqa: PLC0415

        options = read_options(self.options)
        ours = spark_schema(headers=options.headers, blocks=options.blocks)
        if [(each.name, each.dataType) for each in schema] != [
            (each.name, each.dataType) for each in ours
        ]:
            raise LocalError(
                "format pulsarcast has columns of its own: leave out .schema(), and select what "
                "you need"
            )
        return options
