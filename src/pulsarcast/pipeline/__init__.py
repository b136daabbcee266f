"""The data pipeline on Spark: workloads and traces in; tables, verdicts and pictures out.

Transforms are pure functions from DataFrame to DataFrame, shared by batch and stream. Sessions are
built in `session` and nowhere else; files are read and written at the edges.
"""
