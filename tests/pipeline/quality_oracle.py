"""What DuckDB says about a trace: the same figures, computed by another engine from plain SQL.

Nothing of ours is used here, neither code nor trick: every event is set against every subscription
that it is due to, one row each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

COLUMNS = {
    "run_id": "VARCHAR",
    "node_id": "VARCHAR",
    "incarnation": "BIGINT",
    "seq": "BIGINT",
    "mono_ns": "BIGINT",
    "kind": "VARCHAR",
    "topic": "VARCHAR",
    "event": "VARCHAR",
    "publisher": "VARCHAR",
    "epoch": "BIGINT",
    "number": "BIGINT",
    "position": "STRUCT(term BIGINT, number BIGINT)",
    "request_id": "VARCHAR",
    "injection": "VARCHAR",
    "level": "VARCHAR",
    "hops": "BIGINT",
    "redelivery": "BOOLEAN",
    "start": "STRUCT(publisher VARCHAR, epoch BIGINT, number BIGINT)[]",
    "end": "STRUCT(publisher VARCHAR, epoch BIGINT, number BIGINT)[]",
    "action": "VARCHAR",
    "target": "VARCHAR",
    "target_incarnation": "BIGINT",
    "retention_age_s": "BIGINT",
    "retention_count": "BIGINT",
    "retention_bytes": "BIGINT",
    "flushed": "STRUCT(publisher VARCHAR, epoch BIGINT, number BIGINT)[]",
    "operation": "VARCHAR",
    "peer": "VARCHAR",
    "bytes": "BIGINT",
    "first": "BIGINT",
    "last": "BIGINT",
    "cpu_s": "DOUBLE",
    "rss_bytes": "BIGINT",
    "bytes_in": "BIGINT",
    "bytes_out": "BIGINT",
}
"""The fields that the questions below ask for."""

HISTORY = """
CREATE TABLE harm AS
SELECT run_id, target AS node_id,
       max(CASE WHEN action IN ('kill', 'lose') THEN target_incarnation END) AS killed,
       max(CASE WHEN action IN ('restart_empty', 'lose') THEN target_incarnation END) AS wiped
FROM lines WHERE kind = 'fault' AND action IN ('kill', 'lose', 'restart_empty') GROUP BY ALL;

CREATE TABLE said AS
SELECT run_id, topic, publisher, epoch, number, event,
       arg_min(request_id, (incarnation, seq, node_id)) AS request_id,
       arg_min(injection, (incarnation, seq, node_id)) AS injection,
       min((incarnation, seq, node_id)) AS place,
       arg_min(mono_ns, (incarnation, seq, node_id)) AS mono_ns,
       coalesce(arg_min(position.term, (incarnation, seq, node_id)), 0) > 0 AS shared,
       count(DISTINCT node_id) > 1 AS several
FROM lines WHERE kind = 'published' AND (node_id = publisher OR position.term > 0) GROUP BY ALL;

CREATE TABLE promise AS
SELECT run_id, event, max(CASE level WHEN 'replicated' THEN 2
                                   WHEN 'accepted' THEN 1 ELSE 0 END) AS level
FROM lines WHERE kind = 'acknowledged' GROUP BY ALL;

CREATE TABLE elsewhere AS
SELECT DISTINCT run_id, event FROM lines WHERE kind = 'delivered' AND node_id <> publisher;

CREATE TABLE pub AS
WITH known AS (
  SELECT said.*, coalesce(level, 0) AS level, elsewhere.event IS NOT NULL AS left_home
  FROM said LEFT JOIN promise USING (run_id, event) LEFT JOIN elsewhere USING (run_id, event)
), ranked AS (
  SELECT *, row_number() OVER (
    PARTITION BY run_id, topic, publisher, epoch, number
    ORDER BY CASE WHEN level > 0 OR left_home THEN 0 ELSE 1 END,
             CASE WHEN level > 0 OR left_home THEN place END ASC, place DESC) AS preference
  FROM known)
SELECT run_id, topic, publisher, epoch, number, event, request_id, injection, place, mono_ns, level,
       left_home, shared, several
FROM ranked WHERE preference = 1;

CREATE TABLE period AS
WITH turn AS (
  SELECT run_id, node_id, topic, (incarnation, seq) AS place, kind = 'subscribed' AS begins,
         CASE WHEN kind = 'subscribed' THEN start ELSE "end" END AS marks, 'unsubscribed' AS ended
  FROM lines WHERE kind IN ('subscribed', 'unsubscribed')
  UNION ALL
  SELECT DISTINCT f.run_id, f.target, s.topic, (f.target_incarnation, 9223372036854775807), false,
         [], 'disk_lost'
  FROM lines f JOIN lines s ON s.run_id = f.run_id AND s.node_id = f.target AND s.kind = 'subscribed'
  WHERE f.kind = 'fault' AND f.action IN ('restart_empty', 'lose')
), change AS (
  SELECT *, lag(begins, 1, false) OVER who AS was_in FROM turn
  WINDOW who AS (PARTITION BY run_id, node_id, topic ORDER BY place)
), begun AS (
  SELECT *, lead(place) OVER who AS until, lead(ended) OVER who AS why, lead(marks) OVER who AS final
  FROM change WHERE begins <> was_in
  WINDOW who AS (PARTITION BY run_id, node_id, topic ORDER BY place))
SELECT row_number() OVER () AS id, run_id, node_id, topic, place AS since, until,
       coalesce(why, 'open') AS ended, marks AS start, final AS "end"
FROM begun WHERE begins;

CREATE TABLE start_mark AS
SELECT id, m.publisher, m.epoch, m.number FROM (SELECT id, unnest(start) AS m FROM period);
CREATE TABLE end_mark AS
SELECT id, m.publisher, m.epoch, m.number FROM (SELECT id, unnest("end") AS m FROM period);

CREATE TABLE delivery AS
SELECT p.id, l.run_id, l.node_id, l.topic, l.publisher, l.epoch, l.number, l.event,
       l.incarnation, l.seq, l.redelivery, l.hops, l.mono_ns,
       row_number() OVER (PARTITION BY p.id, l.event ORDER BY l.incarnation, l.seq) AS time,
       lag(l.incarnation) OVER (PARTITION BY p.id, l.event ORDER BY l.incarnation, l.seq) AS before
FROM lines l
JOIN period p ON p.run_id = l.run_id AND p.node_id = l.node_id AND p.topic = l.topic
  AND (l.incarnation, l.seq) > p.since AND (p.until IS NULL OR (l.incarnation, l.seq) < p.until)
JOIN pub e ON e.run_id = l.run_id AND e.topic = l.topic AND e.publisher = l.publisher
  AND e.epoch = l.epoch AND e.number = l.number AND e.event = l.event
LEFT JOIN start_mark s ON s.id = p.id AND s.publisher = l.publisher AND s.epoch = l.epoch
WHERE l.kind = 'delivered' AND l.number > coalesce(s.number, 0);

CREATE TABLE pair AS
SELECT p.id, p.ended, e.*, d.id IS NOT NULL AS got, em.number >= e.number AS known
FROM period p JOIN pub e ON e.run_id = p.run_id AND e.topic = p.topic
LEFT JOIN start_mark s ON s.id = p.id AND s.publisher = e.publisher AND s.epoch = e.epoch
LEFT JOIN end_mark em ON em.id = p.id AND em.publisher = e.publisher AND em.epoch = e.epoch
LEFT JOIN delivery d ON d.id = p.id AND d.event = e.event AND d.time = 1
WHERE e.number > coalesce(s.number, 0);

CREATE TABLE topic AS
SELECT run_id, topic, bool_or(kind = 'topic_created') AS own,
       min(retention_count) AS keeps,
       bool_or(retention_age_s IS NOT NULL OR retention_bytes IS NOT NULL) AS otherwise
FROM lines WHERE kind IN ('topic_created', 'topic_version', 'subscribed', 'injected', 'published')
GROUP BY ALL;

CREATE TABLE flush_mark AS
SELECT run_id, topic, m.publisher, m.epoch, m.number
FROM (SELECT run_id, topic, unnest(flushed) AS m FROM lines WHERE kind = 'topic_version');

CREATE TABLE lack AS
WITH twin AS (
  SELECT a.run_id, a.event, b.event AS other, b.publisher, b.epoch, b.number
  FROM pub a JOIN pub b ON a.run_id = b.run_id AND a.request_id = b.request_id AND a.event <> b.event
  WHERE a.request_id <> ''
)
SELECT pair.*, period.node_id,
  EXISTS (FROM twin t JOIN delivery d ON d.id = pair.id AND d.event = t.other
          WHERE t.run_id = pair.run_id AND t.event = pair.event) AS has_twin,
  EXISTS (FROM twin t JOIN start_mark s ON s.id = pair.id AND s.publisher = t.publisher
            AND s.epoch = t.epoch
          WHERE t.run_id = pair.run_id AND t.event = pair.event AND t.number <= s.number) AS concurrent,
  coalesce(NOT shared AND CASE WHEN h.wiped >= pair.place[1] THEN pair.level < 2
                ELSE h.killed >= pair.place[1] AND pair.level = 0 AND NOT left_home END, false) AS excused,
  coalesce((coalesce(t.otherwise OR (SELECT count(*) FROM pub e WHERE e.run_id = pair.run_id
                              AND e.topic = pair.topic) > t.keeps, false)
      OR EXISTS (FROM flush_mark f WHERE f.run_id = pair.run_id AND f.topic = pair.topic
           AND f.publisher = pair.publisher AND f.epoch = pair.epoch AND f.number >= pair.number))
    AND (SELECT max(r.number) FROM lines r WHERE r.kind = 'retired' AND r.run_id = pair.run_id
           AND r.node_id = period.node_id AND r.topic = pair.topic AND r.publisher = pair.publisher
           AND r.epoch = pair.epoch) >= pair.number, false) AS retired
FROM pair JOIN period USING (id)
LEFT JOIN harm h ON h.run_id = pair.run_id AND h.node_id = pair.place[3]
LEFT JOIN topic t ON t.run_id = pair.run_id AND t.topic = pair.topic
WHERE pair.ended = 'open' AND NOT pair.got;

CREATE TABLE gone AS
SELECT DISTINCT run_id, topic, event FROM lack WHERE NOT has_twin AND NOT concurrent AND excused;

CREATE VIEW gap AS
SELECT *, (run_id, node_id, incarnation, topic, publisher, epoch) AS asker
FROM lines WHERE kind IN ('gap_found', 'gap_filled');
"""

COVERAGE = """
WITH counted AS (
  SELECT run_id, topic,
    count(*) FILTER (ended = 'open' OR got) AS due,
    count(*) FILTER (got) AS delivered,
    count(*) FILTER (ended = 'unsubscribed' AND NOT got AND known) AS undecided
  FROM pair ANTI JOIN gone ON gone.run_id = pair.run_id AND gone.event = pair.event
    AND pair.ended = 'open'
  GROUP BY ALL
), lacking AS (
  SELECT run_id, topic,
    count(*) FILTER (has_twin) AS twins,
    count(*) FILTER (NOT has_twin AND concurrent) AS concurrent,
    count(*) FILTER (NOT has_twin AND NOT concurrent AND retired) AS retired,
    count(*) FILTER (NOT has_twin AND NOT concurrent AND NOT retired) AS lost,
    count(DISTINCT event) FILTER (NOT has_twin AND NOT concurrent AND NOT retired AND level > 0)
      AS lost_acknowledged
  FROM lack ANTI JOIN gone USING (run_id, event) GROUP BY ALL
), excused AS (SELECT run_id, topic, count(*) AS events FROM gone GROUP BY ALL
), again AS (
  SELECT run_id, topic, count(*) FILTER (time = 1) AS received,
    count(*) FILTER (time > 1) AS redeliveries,
    count(*) FILTER (time > 1 AND (before = incarnation OR NOT redelivery)) AS duplicates
  FROM delivery GROUP BY ALL
), twice AS (
  SELECT run_id, topic, count(*) FILTER (nth > 1 AND NOT redelivery) AS duplicates
  FROM (SELECT d.*, row_number() OVER (PARTITION BY d.id, e.request_id ORDER BY incarnation, seq) AS nth
        FROM delivery d JOIN pub e ON e.run_id = d.run_id AND e.event = d.event
        WHERE d.time = 1 AND e.request_id <> '')
  GROUP BY ALL
), subscribed AS (
  SELECT run_id, topic, count(*) FILTER (ended = 'open') AS open,
         count(*) FILTER (ended <> 'open') AS over FROM period GROUP BY ALL
), published AS (
  SELECT run_id, topic, count(*) AS events, count(*) FILTER (level > 0) AS acknowledged,
         count(*) FILTER (level > 1) AS replicated FROM pub GROUP BY ALL
), injected AS (
  SELECT i.run_id, i.topic, count(*) AS n, count(e.injection) AS published
  FROM (SELECT DISTINCT run_id, topic, injection FROM lines WHERE kind = 'injected') i
  LEFT JOIN (SELECT run_id, topic, injection FROM pub WHERE injection <> ''
             UNION
             SELECT run_id, topic, injection FROM lines
             WHERE kind = 'acknowledged' AND injection <> ''
               AND (run_id, event) IN (SELECT (run_id, event) FROM pub)
            ) e USING (run_id, topic, injection)
  GROUP BY ALL)
SELECT t.run_id, t.topic,
  coalesce(i.n, 0) AS injected, coalesce(i.published, 0) AS injected_published,
  coalesce(p.events, 0) AS published, coalesce(p.acknowledged, 0) AS acknowledged,
  coalesce(p.replicated, 0) AS replicated,
  coalesce(s.open, 0) AS subscriptions, coalesce(s.over, 0) AS ended_subscriptions,
  coalesce(a.received, 0) AS received,
  coalesce(c.due, 0) - coalesce(l.concurrent, 0) - coalesce(l.retired, 0) AS due,
  coalesce(c.delivered, 0) + coalesce(l.twins, 0) AS delivered,
  coalesce(c.due, 0) - coalesce(l.concurrent, 0) - coalesce(l.retired, 0)
    + (coalesce(i.n, 0) - coalesce(i.published, 0)) * coalesce(s.open, 0) AS due_of_injected,
  coalesce(c.undecided, 0) + coalesce(l.concurrent, 0) AS undecided,
  coalesce(l.retired, 0) AS retired, coalesce(x.events, 0) AS unacknowledged_lost,
  coalesce(l.lost, 0) AS lost, coalesce(l.lost_acknowledged, 0) AS lost_acknowledged,
  coalesce(a.redeliveries, 0) AS redeliveries,
  coalesce(a.duplicates, 0) + coalesce(w.duplicates, 0) AS duplicates
FROM topic t
LEFT JOIN counted c USING (run_id, topic) LEFT JOIN lacking l USING (run_id, topic)
LEFT JOIN excused x USING (run_id, topic) LEFT JOIN again a USING (run_id, topic)
LEFT JOIN twice w USING (run_id, topic) LEFT JOIN subscribed s USING (run_id, topic)
LEFT JOIN published p USING (run_id, topic) LEFT JOIN injected i USING (run_id, topic)
ORDER BY ALL
"""


HOPS = """
SELECT run_id, topic, hops AS value, count(*) AS count FROM delivery
WHERE time = 1 AND node_id <> publisher AND hops > 0 GROUP BY ALL ORDER BY ALL
"""

LATENCY = """
CREATE OR REPLACE TABLE arrival AS
SELECT d.run_id, d.topic, d.node_id, d.event, e.place[3] < d.node_id AS there,
       CASE WHEN NOT e.several THEN d.mono_ns - e.mono_ns END AS difference,
       [least((d.node_id, d.incarnation), (e.place[3], e.place[1])),
        greatest((d.node_id, d.incarnation), (e.place[3], e.place[1]))] AS clocks,
       (CASE WHEN e.place[3] < d.node_id THEN e.mono_ns ELSE d.mono_ns END) // 60000000000 AS stretch
FROM delivery d JOIN pub e USING (run_id, event) WHERE d.time = 1 AND d.node_id <> e.place[3];
CREATE OR REPLACE TABLE bound AS
WITH least_of AS (
  SELECT run_id, clocks, stretch, min(difference) FILTER (there) AS a,
         min(difference) FILTER (NOT there) AS b
  FROM arrival GROUP BY ALL
), raw AS (
  SELECT arrival.*, a + b AS round_trip,
    difference - CASE WHEN there THEN a ELSE b END AS lowest,
    difference + CASE WHEN there THEN b ELSE a END AS highest
  FROM arrival JOIN least_of USING (run_id, clocks, stretch))
SELECT *, (60000000000 + 2 * highest + round_trip) * 400 // 1000000 AS drift,
  CASE WHEN highest IS NOT NULL THEN greatest(0, lowest - drift) END AS low,
  highest + drift AS high
FROM raw;
SELECT run_id, topic, 'latency_' || bound AS measure, ns // 1000000 AS value, count(*) AS count
FROM (SELECT run_id, topic, 'low' AS bound, low AS ns FROM bound WHERE high IS NOT NULL
      UNION ALL SELECT run_id, topic, 'high', high FROM bound WHERE high IS NOT NULL)
GROUP BY ALL ORDER BY ALL
"""

UNMEASURED = """
SELECT run_id, topic, count(*) AS count FROM bound WHERE high IS NULL GROUP BY ALL ORDER BY ALL
"""

REPAIR = """
SELECT run_id, topic, (mono_ns - begun) // 1000000 AS value, count(*) AS count FROM (
  SELECT f.*, coalesce(
    (SELECT min(g.mono_ns) FROM gap g WHERE g.asker = f.asker AND g.seq < f.seq
       AND g.seq > f.previous AND g.first <= f.number AND g.last >= f.number),
    (SELECT max(g.mono_ns) FROM gap g WHERE g.asker = f.asker AND g.seq < f.seq
       AND g.seq > f.previous AND g.first <= f.number)) AS begun
  FROM (SELECT *, lag(seq, 1, 0) OVER (PARTITION BY asker ORDER BY seq) AS previous
        FROM gap WHERE kind = 'gap_filled') f)
WHERE begun IS NOT NULL GROUP BY ALL ORDER BY ALL
"""

OPERATIONS = """
SELECT run_id, topic, operation,
  count(*) FILTER (kind = 'rpc_sent') AS rpc_sent,
  count(*) FILTER (kind = 'rpc_received') AS rpc_received,
  coalesce(sum(bytes) FILTER (kind = 'rpc_sent'), 0)::BIGINT AS rpc_bytes_sent,
  coalesce(sum(bytes) FILTER (kind = 'rpc_received'), 0)::BIGINT AS rpc_bytes_received
FROM lines WHERE kind IN ('rpc_sent', 'rpc_received') GROUP BY ALL ORDER BY ALL
"""

FAN_OUT = """
SELECT run_id, topic, value, count(*) AS count FROM (
  SELECT run_id, topic, node_id, count(DISTINCT peer) AS value FROM lines
  WHERE kind = 'rpc_sent' AND operation = 'EventMessage' GROUP BY ALL)
GROUP BY ALL ORDER BY ALL
"""

NODES = """
WITH node AS (
  SELECT run_id, node_id, count(DISTINCT incarnation) AS lives FROM lines
  WHERE kind = 'node_started' GROUP BY ALL
), rpc AS (
  SELECT run_id, node_id, count(*) FILTER (kind = 'rpc_sent') AS sent,
    count(*) FILTER (kind = 'rpc_received') AS received
  FROM lines WHERE kind IN ('rpc_sent', 'rpc_received') GROUP BY ALL
), final AS (
  SELECT run_id, node_id, incarnation, round(arg_max(cpu_s, seq) * 1000000)::BIGINT AS cpu_us,
    max(rss_bytes) AS rss, arg_max(bytes_in, seq) AS bytes_in, arg_max(bytes_out, seq) AS bytes_out
  FROM lines WHERE kind = 'resources' GROUP BY ALL
), used AS (
  SELECT run_id, node_id, sum(cpu_us)::BIGINT AS cpu_us, max(rss) AS rss,
    sum(bytes_in)::BIGINT AS bytes_in, sum(bytes_out)::BIGINT AS bytes_out FROM final GROUP BY ALL
), handed AS (
  SELECT run_id, node_id, count(*) AS n FROM lines WHERE kind = 'delivered' GROUP BY ALL)
SELECT node.run_id, node.node_id, lives, coalesce(handed.n, 0) AS deliveries,
  CASE WHEN run_id IN (SELECT run_id FROM rpc) THEN coalesce(sent, 0) END AS rpc_sent,
  CASE WHEN run_id IN (SELECT run_id FROM rpc) THEN coalesce(received, 0) END AS rpc_received,
  used.cpu_us, used.rss AS rss_bytes_max, used.bytes_in, used.bytes_out
FROM node LEFT JOIN rpc USING (run_id, node_id) LEFT JOIN used USING (run_id, node_id)
LEFT JOIN handed USING (run_id, node_id) ORDER BY ALL
"""


def open_traces(folders: Sequence[Path]) -> duckdb.DuckDBPyConnection:
    """A database with the traces below these folders, and what happened in them."""
    database = duckdb.connect()
    files = [str(folder / "*.ndjson.zst") for folder in folders]
    fields = "{" + ", ".join(f"'{name}': '{ddl}'" for name, ddl in COLUMNS.items()) + "}"
    database.execute(
        f"CREATE TABLE lines AS FROM read_json({files!r}, format='newline_delimited', columns={fields})"
    )
    database.execute(HISTORY)
    return database


def ask(database: duckdb.DuckDBPyConnection, question: str) -> list[dict[str, Any]]:
    """The answer's rows, each by column."""
    answer = database.execute(question)
    names = [column[0] for column in answer.description]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
