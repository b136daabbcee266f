"""The job of `spark_source`: a topic as a stream, into Parquet or into nothing.

    python -m benchmarks.spark_source_job MASTER HOME parquet|noop OUT BATCH

Prints one line of JSON: rows and batches of this run, and the seconds from the query's start to
its end; then rows and seconds of all batches but the first, in which Spark compiles its code and
starts its Python processes.
"""

from __future__ import annotations

import json
import sys
import time

from pulsarcast.pipeline.session import session


def main(master: str, home: str, sink: str, out: str, batch: str) -> None:
    """Read what is there, and end."""
    settings = {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    if master.startswith("spark:"):
        settings |= {"spark.executor.memory": "640m", "spark.driver.memory": "1g"}
    with session("benchmark", master=master, settings=settings) as spark:
        # Once before: neither the start of Spark nor that of its first Python is the stream's.
        spark.range(1).mapInArrow(lambda batches: batches, "id bigint").collect()
        topic = (
            spark.readStream.format("pulsarcast")
            .option("home", home)
            .option("topics", "large")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", batch)
            .load()
        )
        writer = topic.writeStream.option("checkpointLocation", f"{out}/checkpoint")
        began_s = time.monotonic()
        if sink == "parquet":
            query = writer.format("parquet").option("path", f"{out}/table")
        else:
            query = writer.format("noop")
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        took_s = time.monotonic() - began_s
        progress = [each for each in running.recentProgress if each["numInputRows"]]
        rows = sum(each["numInputRows"] for each in progress)
        later = progress[1:]
        later_s = sum(each["durationMs"]["triggerExecution"] for each in later) / 1000
        told = {
            "rows": rows,
            "batches": len(progress),
            "stream_s": took_s,
            "later_rows": sum(each["numInputRows"] for each in later),
            "later_s": later_s,
        }
        print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
