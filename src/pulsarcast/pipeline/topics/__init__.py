"""Topics as tables and streams: `spark.read` and `spark.readStream` of `format("pulsarcast")`.

A source reads a node's durable, numbered log of each topic, never a live socket: only so does a
batch that is replayed hold the same rows (docs/decisions/0017).
"""
