-- The same tables as `pulsarcast pipeline ingest` and `metrics`, in plain Spark SQL.
--
-- What our own code is measured against (`pipeline_cost.py`): nothing here is of ours. It is written
-- as one would who knows Spark and the data: names that are joined a lot are hashed, small tables
-- are sent to large ones, what is used twice is kept.

CREATE TEMPORARY VIEW said (
  schema_version BIGINT, run_id STRING, node_id STRING, incarnation BIGINT, seq BIGINT,
  wall_ns BIGINT, mono_ns BIGINT, kind STRING,
  reason STRING, cpu_s DOUBLE, rss_bytes BIGINT, bytes_in BIGINT, bytes_out BIGINT,
  action STRING, target STRING, detail STRING, target_incarnation BIGINT,
  topic STRING, name STRING, author STRING, `order` STRING, dissemination STRING,
  version STRING, linking STRING, allowed ARRAY<STRING>,
  retention_age_s BIGINT, retention_count BIGINT, retention_bytes BIGINT, number BIGINT,
  flushed ARRAY<STRUCT<publisher: STRING, epoch: BIGINT, number: BIGINT>>,
  other STRING, moves BIGINT, clash BOOLEAN,
  start ARRAY<STRUCT<publisher: STRING, epoch: BIGINT, number: BIGINT>>, filters ARRAY<STRING>,
  in_parts BOOLEAN, whole BOOLEAN,
  `end` ARRAY<STRUCT<publisher: STRING, epoch: BIGINT, number: BIGINT>>,
  injection STRING, event STRING, publisher STRING, epoch BIGINT, parents ARRAY<STRING>,
  position STRUCT<term: BIGINT, number: BIGINT>, request_id STRING, merge BOOLEAN, level STRING,
  replicas BIGINT, index BIGINT, hops BIGINT, redelivery BOOLEAN, term BIGINT, leader STRING,
  operation STRING, peer STRING, bytes BIGINT, first BIGINT, last BIGINT, source STRING, verdict STRING,
  _corrupt_record STRING
) USING json OPTIONS (path '${traces}', pathGlobFilter '*.ndjson.zst');

CREATE TABLE landed USING parquet PARTITIONED BY (run_id, kind) LOCATION '${out}/landed' AS
SELECT *, input_file_name() AS segment FROM said;

-- Lines that are none have no kind, so they have a partition of their own.
CREATE TABLE quarantine USING parquet LOCATION '${out}/quarantine' AS
SELECT segment, 'not JSON' AS reason, _corrupt_record AS text FROM landed WHERE kind IS NULL;

-- The same line in two segments counts once. That is rare, so only those are sorted out.
CREATE TABLE repeated USING parquet AS
SELECT xxhash64(run_id, node_id, incarnation) AS life, seq
FROM landed WHERE kind IS NOT NULL GROUP BY ALL HAVING count(*) > 1;

CREATE TEMPORARY VIEW lines AS
SELECT *, shiftleft(incarnation, 32) | seq AS place FROM (
  SELECT * FROM landed l WHERE kind IS NOT NULL AND NOT EXISTS (
    SELECT * FROM repeated r
    WHERE r.life = xxhash64(l.run_id, l.node_id, l.incarnation) AND r.seq = l.seq)
  UNION ALL
  SELECT * EXCEPT (time) FROM (
    SELECT *, row_number() OVER (
      PARTITION BY run_id, kind, node_id, incarnation, seq ORDER BY segment) AS time
    FROM landed l WHERE kind IS NOT NULL AND EXISTS (
      SELECT * FROM repeated r
      WHERE r.life = xxhash64(l.run_id, l.node_id, l.incarnation) AND r.seq = l.seq)
  ) WHERE time = 1);

-- What happened: topics, harm done to nodes, events that stand, subscriptions.

CREATE TABLE topic USING parquet AS
SELECT run_id, topic,
  max(CASE WHEN kind = 'topic_created' THEN name END) AS name,
  max(CASE WHEN kind = 'topic_created' THEN `order` END) AS `order`,
  NOT bool_or(kind = 'topic_created') AS is_meta,
  min(retention_count) AS keeps,
  bool_or(coalesce(retention_age_s, retention_bytes) IS NOT NULL) AS keeps_otherwise
FROM lines
WHERE kind IN ('topic_created', 'topic_version', 'subscribed', 'injected', 'published')
  AND topic IS NOT NULL
GROUP BY ALL;

CREATE TABLE harm USING parquet AS
SELECT run_id, target AS node_id, target_incarnation AS incarnation,
  bool_or(action IN ('kill', 'lose')) AS killed,
  bool_or(action IN ('restart_empty', 'lose')) AS disk_lost
FROM lines
WHERE kind = 'fault' AND action IN ('kill', 'lose', 'restart_empty')
  AND target_incarnation IS NOT NULL
GROUP BY ALL;

CREATE TABLE known_event USING parquet AS
WITH told AS (
  SELECT run_id, topic, publisher, epoch, number, event, min(place) AS place,
    min_by(struct(request_id, injection, mono_ns), place) AS first
  FROM lines WHERE kind = 'published' AND node_id = publisher GROUP BY ALL
), promised AS (
  SELECT run_id, event,
    max(CASE level WHEN 'replicated' THEN 2 WHEN 'accepted' THEN 1 ELSE 0 END) AS level
  FROM lines WHERE kind = 'acknowledged' GROUP BY ALL
)
SELECT run_id, topic, publisher, epoch, number, event, place, first.*, coalesce(level, 0) AS level,
  count(*) OVER (PARTITION BY run_id, topic, publisher, epoch, number) AS rivals
FROM told LEFT JOIN promised USING (run_id, event);

-- Of two events with one number the first stands that anyone else knew of, or else the last.
CREATE TABLE event USING parquet AS
WITH abroad AS (
  SELECT DISTINCT run_id, event FROM lines
  WHERE kind = 'delivered' AND node_id <> publisher
    AND event IN (SELECT event FROM known_event WHERE rivals > 1)
), ranked AS (
  SELECT k.*, row_number() OVER (
    PARTITION BY run_id, topic, publisher, epoch, number
    ORDER BY level > 0 OR a.event IS NOT NULL DESC,
      CASE WHEN level > 0 OR a.event IS NOT NULL THEN place ELSE -place END) AS preference
  FROM known_event k LEFT JOIN abroad a USING (run_id, event)
)
SELECT run_id, topic, publisher, epoch, number, event, request_id, injection, mono_ns, level,
  shiftright(place, 32) AS incarnation,
  xxhash64(run_id, topic, publisher, epoch, number, event) AS event_key,
  coalesce(request_id, '') <> '' AND count(*) OVER (PARTITION BY run_id, request_id) > 1 AS has_twin
FROM ranked WHERE preference = 1;

CREATE TABLE period USING parquet AS
WITH turn AS (
  SELECT run_id, node_id, topic, place, kind = 'subscribed' AS begins, 'unsubscribed' AS ended,
    CASE WHEN kind = 'subscribed' THEN start ELSE `end` END AS marks,
    filters IS NOT NULL AS filtered
  FROM lines WHERE kind IN ('subscribed', 'unsubscribed')
  UNION ALL
  SELECT h.run_id, h.node_id, s.topic, shiftleft(h.incarnation, 32) | 4294967295L, false,
    'disk_lost', NULL, false
  FROM harm h
  JOIN (SELECT DISTINCT run_id, node_id, topic FROM lines WHERE kind = 'subscribed') s
    USING (run_id, node_id)
  WHERE disk_lost
), changed AS (
  SELECT *, coalesce(lag(begins) OVER who, false) AS was_in FROM turn
  WINDOW who AS (PARTITION BY run_id, node_id, topic ORDER BY place)
), begun AS (
  SELECT *, lead(place) OVER who AS until, lead(ended) OVER who AS why, lead(marks) OVER who AS final
  FROM changed WHERE begins <> was_in
  WINDOW who AS (PARTITION BY run_id, node_id, topic ORDER BY place)
)
SELECT xxhash64(run_id, node_id, topic, place) AS id, run_id, node_id, topic, place AS since, until,
  coalesce(why, 'open') AS ended, marks AS start, final AS `end`
-- What is due to one with filters is in no trace: it has no part in any measure of coverage.
FROM begun WHERE begins AND NOT filtered;

CREATE TABLE start_mark USING parquet AS
SELECT id, run_id, topic, mark.publisher, mark.epoch, max(mark.number) AS number
FROM (SELECT id, run_id, topic, explode(start) AS mark FROM period) GROUP BY ALL;

CREATE TABLE end_mark USING parquet AS
SELECT id, run_id, topic, mark.publisher, mark.epoch, max(mark.number) AS number
FROM (SELECT id, run_id, topic, explode(`end`) AS mark FROM period) GROUP BY ALL;

-- What each subscription got, each event once.

CREATE TABLE receipt USING parquet AS
WITH said AS (
  SELECT /*+ BROADCAST(p), BROADCAST(e), BROADCAST(s) */
    p.id, e.event_key, l.incarnation, l.place, l.mono_ns, l.redelivery, l.hops,
    l.node_id = l.publisher AS own
  FROM lines l
  JOIN period p ON p.run_id = l.run_id AND p.node_id = l.node_id AND p.topic = l.topic
    AND l.place > p.since AND (p.until IS NULL OR l.place < p.until)
  JOIN event e
    ON e.event_key = xxhash64(l.run_id, l.topic, l.publisher, l.epoch, l.number, l.event)
  LEFT JOIN start_mark s ON s.id = p.id AND s.publisher = l.publisher AND s.epoch = l.epoch
  WHERE l.kind = 'delivered' AND l.number > coalesce(s.number, 0)
), in_life AS (
  SELECT id, event_key, incarnation, count(*) AS times, min(place) AS place,
    min_by(mono_ns, place) AS mono_ns, min_by(redelivery, place) AS marked,
    min_by(hops, place) AS hops, bool_or(own) AS own
  -- Both groups below find their rows together then, and no row moves twice.
  FROM (SELECT * FROM said DISTRIBUTE BY id, event_key)
  GROUP BY id, event_key, incarnation
)
SELECT id, event_key, sum(times) AS times, min(place) AS place,
  min_by(mono_ns, place) AS mono_ns, min_by(marked, place) AS marked, min_by(hops, place) AS hops,
  bool_or(own) AS own,
  sum(times) - count(*) + count_if(NOT marked) - if(min_by(marked, place), 0, 1) AS duplicates
FROM in_life GROUP BY id, event_key;

-- What each should have got, and what those lack that got less.

CREATE TABLE owed USING parquet AS
WITH published AS (SELECT run_id, topic, count(*) AS n FROM event GROUP BY ALL
), covered AS (
  SELECT s.id, count(*) AS n
  FROM start_mark s JOIN event e USING (run_id, topic, publisher, epoch)
  WHERE e.number <= s.number GROUP BY ALL
), got AS (
  SELECT id, count(*) AS received, sum(times - 1) AS redeliveries, sum(duplicates) AS duplicates
  FROM receipt GROUP BY id
)
SELECT p.id, p.run_id, p.node_id, p.topic, p.ended,
  coalesce(published.n, 0) - coalesce(covered.n, 0) AS due, coalesce(received, 0) AS received,
  coalesce(redeliveries, 0) AS redeliveries, coalesce(duplicates, 0) AS duplicates
FROM period p LEFT JOIN published USING (run_id, topic)
LEFT JOIN covered USING (id) LEFT JOIN got USING (id);

CREATE TABLE lack USING parquet AS
WITH short AS (SELECT * FROM owed WHERE ended = 'open' AND due > received
), due AS (
  SELECT /*+ BROADCAST(o), BROADCAST(s) */ o.id, o.node_id, e.*
  FROM event e JOIN short o USING (run_id, topic)
  LEFT JOIN start_mark s ON s.id = o.id AND s.publisher = e.publisher AND s.epoch = e.epoch
  WHERE e.number > coalesce(s.number, 0)
), missing AS (
  SELECT * FROM due ANTI JOIN receipt USING (id, event_key)
), twin AS (
  SELECT m.id, m.event_key, bool_or(r.id IS NOT NULL) AS had,
    bool_or(coalesce(o.number <= s.number, false)) AS before
  FROM missing m
  JOIN event o ON o.run_id = m.run_id AND o.request_id = m.request_id AND o.event <> m.event
  LEFT JOIN receipt r ON r.id = m.id AND r.event_key = o.event_key
  LEFT JOIN start_mark s ON s.id = m.id AND s.publisher = o.publisher AND s.epoch = o.epoch
  WHERE m.has_twin GROUP BY ALL
), abroad AS (
  SELECT DISTINCT run_id, event FROM lines
  WHERE kind = 'delivered' AND node_id <> publisher
    AND event IN (SELECT event FROM missing WHERE level = 0)
), harmed AS (
  SELECT run_id, node_id, max(CASE WHEN killed THEN incarnation END) AS killed,
    max(CASE WHEN disk_lost THEN incarnation END) AS wiped
  FROM harm GROUP BY ALL
), let_go AS (
  SELECT run_id, node_id, topic, publisher, epoch, max(number) AS number
  FROM lines WHERE kind = 'retired' GROUP BY ALL
), letting AS (
  SELECT t.run_id, t.topic FROM topic t JOIN event e USING (run_id, topic)
  GROUP BY t.run_id, t.topic, keeps, keeps_otherwise HAVING keeps_otherwise OR count(*) > keeps
), flushed AS (
  SELECT run_id, topic, mark.publisher, mark.epoch, max(mark.number) AS number
  FROM (SELECT run_id, topic, explode(flushed) AS mark FROM lines WHERE kind = 'topic_version')
  GROUP BY ALL
)
SELECT m.run_id, m.topic, m.id, m.event_key, m.publisher, m.epoch, m.number, m.level,
  CASE
    WHEN t.had THEN 'twin'
    WHEN t.before THEN 'concurrent'
    WHEN h.wiped >= m.incarnation AND m.level < 2 THEN 'unacknowledged'
    WHEN coalesce(h.wiped < m.incarnation, true) AND h.killed >= m.incarnation AND m.level = 0
      AND a.event IS NULL THEN 'unacknowledged'
    WHEN (g.topic IS NOT NULL OR f.number >= m.number) AND r.number >= m.number THEN 'retired'
    ELSE 'lost'
  END AS reason
FROM missing m
LEFT JOIN twin t USING (id, event_key)
LEFT JOIN abroad a ON a.run_id = m.run_id AND a.event = m.event
LEFT JOIN harmed h ON h.run_id = m.run_id AND h.node_id = m.publisher
LEFT JOIN let_go r ON r.run_id = m.run_id AND r.node_id = m.node_id AND r.topic = m.topic
  AND r.publisher = m.publisher AND r.epoch = m.epoch
LEFT JOIN letting g ON g.run_id = m.run_id AND g.topic = m.topic
LEFT JOIN flushed f ON f.run_id = m.run_id AND f.topic = m.topic AND f.publisher = m.publisher
  AND f.epoch = m.epoch;

CREATE TABLE coverage USING parquet AS
WITH injected AS (
  SELECT run_id, topic, count(*) AS injected, count(e.injection) AS injected_published
  FROM (SELECT DISTINCT run_id, topic, injection FROM lines WHERE kind = 'injected') i
  LEFT JOIN (SELECT run_id, topic, injection FROM event WHERE injection <> ''
             UNION
             SELECT a.run_id, a.topic, a.injection FROM lines a
             LEFT SEMI JOIN event p ON p.run_id = a.run_id AND p.event = a.event
             WHERE a.kind = 'acknowledged' AND a.injection <> '') e
    USING (run_id, topic, injection)
  GROUP BY ALL
), published AS (
  SELECT run_id, topic, count(*) AS published, count_if(level > 0) AS acknowledged,
    count_if(level > 1) AS replicated
  FROM event GROUP BY ALL
), subscribed AS (
  SELECT run_id, topic, count_if(ended = 'open') AS subscriptions,
    count_if(ended <> 'open') AS ended_subscriptions, sum(received) AS received,
    sum(CASE WHEN ended = 'open' THEN due ELSE received END) AS due,
    sum(redeliveries) AS redeliveries, sum(duplicates) AS duplicates
  FROM owed GROUP BY ALL
), undecided AS (
  SELECT run_id, topic, sum(known - coalesce(have, 0)) AS undecided
  FROM (
    SELECT n.id, n.run_id, n.topic, count(e.event) AS known
    FROM end_mark n JOIN period p ON p.id = n.id AND p.ended = 'unsubscribed'
    LEFT JOIN start_mark s ON s.id = n.id AND s.publisher = n.publisher AND s.epoch = n.epoch
    JOIN event e ON e.run_id = n.run_id AND e.topic = n.topic AND e.publisher = n.publisher
      AND e.epoch = n.epoch AND e.number <= n.number AND e.number > coalesce(s.number, 0)
    GROUP BY ALL)
  LEFT JOIN (
    SELECT r.id, count(*) AS have
    FROM receipt r JOIN event e USING (event_key)
    JOIN end_mark n ON n.id = r.id AND n.publisher = e.publisher AND n.epoch = e.epoch
      AND e.number <= n.number
    GROUP BY ALL) USING (id)
  GROUP BY ALL
), lacking AS (
  SELECT run_id, topic, sum(n) AS missing, sum(twins) AS twins, sum(concurrent) AS concurrent,
    sum(retired) AS retired, count_if(lost > 0 AND level > 0) AS lost_acknowledged
  FROM (
    SELECT run_id, topic, event_key, level, count(*) AS n, count_if(reason = 'twin') AS twins,
      count_if(reason = 'concurrent') AS concurrent, count_if(reason = 'retired') AS retired,
      count_if(reason = 'lost') AS lost
    FROM lack GROUP BY ALL)
  GROUP BY ALL
), excused AS (
  SELECT run_id, topic, count(*) AS events, sum(missing) AS missing, sum(concurrent) AS concurrent,
    sum(due_to) AS due_to
  FROM (
    SELECT g.*, (
      SELECT count(*) FROM period p WHERE p.run_id = g.run_id AND p.topic = g.topic
        AND p.ended = 'open') - coalesce(c.n, 0) AS due_to
    FROM (
      SELECT run_id, topic, event_key, publisher, epoch, number,
        count_if(reason = 'unacknowledged') AS missing, count_if(reason = 'concurrent') AS concurrent
      FROM lack GROUP BY ALL HAVING missing > 0) g
    LEFT JOIN (
      SELECT l.event_key, count(DISTINCT s.id) AS n
      FROM lack l JOIN start_mark s USING (run_id, topic, publisher, epoch)
      JOIN period p ON p.id = s.id AND p.ended = 'open'
      WHERE s.number >= l.number GROUP BY ALL) c USING (event_key))
  GROUP BY ALL
), twice AS (
  SELECT run_id, topic, count(*) AS duplicates FROM (
    SELECT e.run_id, e.topic, r.marked,
      row_number() OVER (PARTITION BY r.id, e.run_id, e.request_id ORDER BY r.place) AS nth
    FROM receipt r JOIN (SELECT * FROM event WHERE has_twin) e USING (event_key))
  WHERE nth > 1 AND NOT marked GROUP BY ALL
), counted AS (
  SELECT run_id, topic,
    coalesce(injected, 0) AS injected, coalesce(injected_published, 0) AS injected_published,
    coalesce(published, 0) AS published, coalesce(acknowledged, 0) AS acknowledged,
    coalesce(replicated, 0) AS replicated, coalesce(subscriptions, 0) AS subscriptions,
    coalesce(ended_subscriptions, 0) AS ended_subscriptions, coalesce(received, 0) AS received,
    coalesce(s.due, 0) - coalesce(l.concurrent, 0) - coalesce(l.retired, 0)
      - (coalesce(x.due_to, 0) - coalesce(x.concurrent, 0)) AS due,
    coalesce(s.due, 0) - (coalesce(l.missing, 0) - coalesce(l.twins, 0))
      - (coalesce(x.due_to, 0) - coalesce(x.missing, 0) - coalesce(x.concurrent, 0)) AS delivered,
    coalesce(u.undecided, 0) + coalesce(l.concurrent, 0) AS undecided,
    coalesce(l.retired, 0) AS retired, coalesce(x.events, 0) AS unacknowledged_lost,
    coalesce(l.lost_acknowledged, 0) AS lost_acknowledged,
    coalesce(s.redeliveries, 0) AS redeliveries,
    coalesce(s.duplicates, 0) + coalesce(w.duplicates, 0) AS duplicates
  FROM topic LEFT JOIN injected USING (run_id, topic) LEFT JOIN published USING (run_id, topic)
  LEFT JOIN subscribed s USING (run_id, topic) LEFT JOIN undecided u USING (run_id, topic)
  LEFT JOIN lacking l USING (run_id, topic) LEFT JOIN excused x USING (run_id, topic)
  LEFT JOIN twice w USING (run_id, topic)
)
SELECT *, due + (injected - injected_published) * subscriptions AS due_of_injected,
  due - delivered AS lost
FROM counted;

-- Messages, resources, repairs of gaps.

CREATE TABLE message USING parquet AS
SELECT run_id, node_id, topic, operation, kind,
  CASE WHEN kind = 'rpc_sent' AND operation = 'EventMessage' THEN peer END AS peer,
  count(*) AS messages, sum(bytes) AS bytes
FROM lines WHERE kind IN ('rpc_sent', 'rpc_received') GROUP BY ALL;

CREATE TABLE node USING parquet LOCATION '${out}/nodes' AS
WITH started AS (
  SELECT run_id, node_id, count(DISTINCT incarnation) AS lives
  FROM lines WHERE kind = 'node_started' GROUP BY ALL
), spoken AS (
  SELECT run_id, node_id,
    coalesce(sum(CASE WHEN kind = 'rpc_sent' THEN messages END), 0) AS rpc_sent,
    coalesce(sum(CASE WHEN kind = 'rpc_received' THEN messages END), 0) AS rpc_received,
    coalesce(sum(CASE WHEN kind = 'rpc_sent' THEN bytes END), 0) AS rpc_bytes_sent,
    coalesce(sum(CASE WHEN kind = 'rpc_received' THEN bytes END), 0) AS rpc_bytes_received
  FROM message GROUP BY ALL
), speaking AS (SELECT DISTINCT run_id, 0L AS none FROM message
), got AS (
  SELECT run_id, node_id, count(*) AS deliveries FROM lines WHERE kind = 'delivered' GROUP BY ALL
), used AS (
  SELECT run_id, node_id, sum(cpu_us) AS cpu_us, max(cpu_milli_max) AS cpu_milli_max,
    max(rss_bytes_max) AS rss_bytes_max, sum(bytes_in) AS bytes_in, sum(bytes_out) AS bytes_out
  FROM (
    SELECT run_id, node_id, incarnation, max_by(cpu_us, seq) AS cpu_us,
      max_by(bytes_in, seq) AS bytes_in, max_by(bytes_out, seq) AS bytes_out,
      max(rss_bytes) AS rss_bytes_max,
      max(CASE WHEN ns > 0 THEN CAST(round(us * 1000000 / ns) AS BIGINT) END) AS cpu_milli_max
    FROM (
      SELECT *, cpu_us - lag(cpu_us) OVER life AS us, mono_ns - lag(mono_ns) OVER life AS ns
      FROM (SELECT *, CAST(round(cpu_s * 1000000) AS BIGINT) AS cpu_us FROM lines
            WHERE kind = 'resources')
      WINDOW life AS (PARTITION BY run_id, node_id, incarnation ORDER BY seq))
    GROUP BY ALL)
  GROUP BY ALL
)
SELECT run_id, node_id, lives, coalesce(deliveries, 0L) AS deliveries,
  coalesce(rpc_sent, none) AS rpc_sent, coalesce(rpc_received, none) AS rpc_received, coalesce(rpc_bytes_sent, none) AS rpc_bytes_sent,
  coalesce(rpc_bytes_received, none) AS rpc_bytes_received, cpu_us, cpu_milli_max, rss_bytes_max,
  bytes_in, bytes_out
FROM started LEFT JOIN spoken USING (run_id, node_id) LEFT JOIN used USING (run_id, node_id)
LEFT JOIN got USING (run_id, node_id) LEFT JOIN speaking USING (run_id);

CREATE TABLE operation USING parquet LOCATION '${out}/operations' AS
SELECT run_id, topic, operation,
  coalesce(sum(CASE WHEN kind = 'rpc_sent' THEN messages END), 0) AS rpc_sent,
  coalesce(sum(CASE WHEN kind = 'rpc_received' THEN messages END), 0) AS rpc_received,
  coalesce(sum(CASE WHEN kind = 'rpc_sent' THEN bytes END), 0) AS rpc_bytes_sent,
  coalesce(sum(CASE WHEN kind = 'rpc_received' THEN bytes END), 0) AS rpc_bytes_received
FROM message GROUP BY ALL;

CREATE TABLE repair USING parquet AS
WITH turn AS (
  SELECT *, coalesce(count_if(kind = 'gap_filled') OVER (
      PARTITION BY run_id, topic, node_id, incarnation, publisher, epoch ORDER BY seq
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS turn
  FROM lines WHERE kind IN ('gap_found', 'gap_filled')
), filled AS (
  SELECT *, max(CASE WHEN kind = 'gap_filled' THEN number END) OVER (
      PARTITION BY run_id, topic, node_id, incarnation, publisher, epoch, turn) AS filled
  FROM turn
), timed AS (
  SELECT run_id, topic, node_id, incarnation, publisher, epoch, turn,
    count_if(kind = 'gap_found') AS found,
    max(CASE WHEN kind = 'gap_filled' THEN mono_ns END) AS filled_ns,
    coalesce(
      min(CASE WHEN kind = 'gap_found' AND first <= filled AND filled <= last THEN mono_ns END),
      max(CASE WHEN kind = 'gap_found' AND first <= filled THEN mono_ns END)) AS begun_ns
  FROM filled GROUP BY ALL
)
SELECT run_id, topic, found, filled_ns, (filled_ns - begun_ns) DIV 1000000 AS value FROM timed;

-- Latency: clocks of two nodes are compared by the least differences in both directions.

CREATE TABLE difference USING parquet AS
WITH arrival AS (
  SELECT /*+ BROADCAST(p), BROADCAST(e) */ e.run_id, e.topic,
    xxhash64(e.run_id, e.publisher, e.incarnation) AS departure_clock, e.mono_ns AS departure_ns,
    xxhash64(p.run_id, p.node_id, shiftright(r.place, 32)) AS arrival_clock,
    r.mono_ns AS arrival_ns
  FROM receipt r JOIN period p USING (id) JOIN event e USING (event_key) WHERE NOT r.own
)
SELECT run_id, topic, departure_clock < arrival_clock AS there,
  xxhash64(least(departure_clock, arrival_clock), greatest(departure_clock, arrival_clock),
    CASE WHEN departure_clock < arrival_clock THEN departure_ns ELSE arrival_ns END
      DIV 60000000000) AS stretch,
  arrival_ns - departure_ns AS difference
FROM arrival;

CREATE TABLE latency USING parquet AS
WITH least_of AS (
  SELECT stretch, min(CASE WHEN there THEN difference END) AS there_ns,
    min(CASE WHEN NOT there THEN difference END) AS back_ns
  FROM difference GROUP BY ALL
), raw AS (
  SELECT run_id, topic, there_ns + back_ns AS round_trip,
    difference - CASE WHEN there THEN there_ns ELSE back_ns END AS low,
    difference + CASE WHEN there THEN back_ns ELSE there_ns END AS high
  FROM difference JOIN least_of USING (stretch)
), bounded AS (
  SELECT run_id, topic, low, high,
    CAST((60000000000 + 2 * high + round_trip) * 4.0E-4D AS BIGINT) AS drift
  FROM raw
), value AS (
  SELECT run_id, topic, explode(CASE WHEN high IS NULL
      THEN array(struct('unmeasured' AS bound, CAST(NULL AS BIGINT) AS ns))
      ELSE array(struct('low' AS bound, greatest(0L, low - drift) AS ns),
                 struct('high' AS bound, high + drift AS ns)) END) AS b
  FROM bounded
)
SELECT run_id, topic, b.bound, b.ns DIV 1000000 AS value, count(*) AS count FROM value GROUP BY ALL;

-- The tables for people.

CREATE TABLE figure USING parquet AS
WITH spoken AS (
  SELECT run_id, topic, sum(rpc_sent) AS rpc_sent, sum(rpc_received) AS rpc_received,
    sum(rpc_bytes_sent) AS rpc_bytes_sent, sum(rpc_bytes_received) AS rpc_bytes_received
  FROM operation GROUP BY ALL
), repaired AS (
  SELECT run_id, topic, sum(found) AS gaps_found, count(filled_ns) AS gaps_filled,
    count(value) AS gaps_measured
  FROM repair GROUP BY ALL
), unmeasured AS (
  SELECT run_id, topic, sum(count) AS latency_unmeasured
  FROM latency WHERE bound = 'unmeasured' GROUP BY ALL
), place AS (
  SELECT run_id, topic FROM coverage UNION SELECT run_id, topic FROM spoken
  UNION SELECT run_id, topic FROM repaired UNION SELECT run_id, topic FROM unmeasured
)
SELECT p.run_id, p.topic, c.* EXCEPT (run_id, topic), s.* EXCEPT (run_id, topic),
  r.* EXCEPT (run_id, topic), u.latency_unmeasured
FROM place p
LEFT JOIN coverage c ON c.run_id = p.run_id AND c.topic <=> p.topic
LEFT JOIN spoken s ON s.run_id = p.run_id AND s.topic <=> p.topic
LEFT JOIN repaired r ON r.run_id = p.run_id AND r.topic <=> p.topic
LEFT JOIN unmeasured u ON u.run_id = p.run_id AND u.topic <=> p.topic;

CREATE TABLE topics USING parquet LOCATION '${out}/topics' AS
SELECT t.run_id, t.topic, t.name, t.`order`, t.is_meta, f.* EXCEPT (run_id, topic)
FROM topic t JOIN figure f ON f.run_id = t.run_id AND f.topic = t.topic;

CREATE TABLE runs USING parquet LOCATION '${out}/runs' AS
SELECT f.run_id, scope,
  sum(injected) AS injected, sum(injected_published) AS injected_published,
  sum(published) AS published, sum(acknowledged) AS acknowledged, sum(replicated) AS replicated,
  sum(subscriptions) AS subscriptions, sum(ended_subscriptions) AS ended_subscriptions,
  sum(received) AS received, sum(due) AS due, sum(delivered) AS delivered,
  sum(due_of_injected) AS due_of_injected, sum(undecided) AS undecided, sum(retired) AS retired,
  sum(unacknowledged_lost) AS unacknowledged_lost, sum(lost) AS lost,
  sum(lost_acknowledged) AS lost_acknowledged, sum(redeliveries) AS redeliveries,
  sum(duplicates) AS duplicates, sum(rpc_sent) AS rpc_sent, sum(rpc_received) AS rpc_received,
  sum(rpc_bytes_sent) AS rpc_bytes_sent, sum(rpc_bytes_received) AS rpc_bytes_received,
  sum(gaps_found) AS gaps_found, sum(gaps_filled) AS gaps_filled,
  sum(gaps_measured) AS gaps_measured, sum(latency_unmeasured) AS latency_unmeasured
FROM figure f LEFT JOIN topic t USING (run_id, topic)
LATERAL VIEW explode(CASE WHEN f.topic IS NULL THEN array('all')
  ELSE array('all', if(coalesce(t.is_meta, true), 'meta', 'own')) END) AS scope
GROUP BY f.run_id, scope;

CREATE TABLE histogram USING parquet LOCATION '${out}/histograms' AS
SELECT run_id, 'hops' AS measure, topic, hops AS value, count(*) AS count
FROM receipt JOIN period USING (id) WHERE NOT own AND hops > 0 GROUP BY ALL
UNION ALL
SELECT run_id, 'fan_out', topic, value, count(*) FROM (
  SELECT run_id, topic, node_id, count(DISTINCT peer) AS value
  FROM message WHERE peer IS NOT NULL GROUP BY ALL) GROUP BY ALL
UNION ALL
SELECT run_id, 'gap_repair', topic, value, count(*) FROM repair
WHERE value IS NOT NULL GROUP BY ALL
UNION ALL
SELECT run_id, concat('latency_', bound), topic, value, count FROM latency
WHERE bound <> 'unmeasured'
UNION ALL
SELECT run_id, measure, NULL, value, count(*) FROM (
  SELECT run_id, stack(10, 'deliveries', deliveries, 'rpc_sent', rpc_sent, 'rpc_received', rpc_received,
    'rpc_bytes_sent', rpc_bytes_sent, 'rpc_bytes_received', rpc_bytes_received, 'cpu_us', cpu_us,
    'cpu_milli_max', cpu_milli_max, 'rss_bytes_max', rss_bytes_max, 'bytes_in', bytes_in,
    'bytes_out', bytes_out) AS (measure, value)
  FROM node) WHERE value IS NOT NULL GROUP BY ALL;

CREATE TABLE distribution USING parquet LOCATION '${out}/distributions' AS
WITH scoped AS (
  SELECT h.run_id, s.scope, s.topic, measure, value, count
  FROM histogram h LEFT JOIN topic t USING (run_id, topic)
  LATERAL VIEW explode(CASE WHEN h.topic IS NULL
    THEN array(struct('nodes' AS scope, CAST(NULL AS STRING) AS topic))
    ELSE array(struct('topic' AS scope, h.topic AS topic),
      struct(if(coalesce(t.is_meta, true), 'meta', 'own') AS scope, CAST(NULL AS STRING) AS topic),
      struct('all' AS scope, CAST(NULL AS STRING) AS topic)) END) AS s
), merged AS (
  SELECT run_id, scope, topic, measure, value, sum(count) AS count FROM scoped GROUP BY ALL
), walked AS (
  SELECT *,
    sum(count) OVER (PARTITION BY run_id, scope, topic, measure ORDER BY value
                     ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS seen,
    sum(count) OVER (PARTITION BY run_id, scope, topic, measure) AS whole
  FROM merged
)
SELECT run_id, scope, topic, measure,
  CASE WHEN measure = 'hops' THEN 'hops' WHEN measure = 'fan_out' THEN 'peers'
    WHEN measure IN ('gap_repair', 'latency_low', 'latency_high') THEN 'milliseconds'
    WHEN measure = 'deliveries' THEN 'deliveries'
    WHEN measure IN ('rpc_sent', 'rpc_received') THEN 'messages'
    WHEN measure = 'cpu_us' THEN 'microseconds'
    WHEN measure = 'cpu_milli_max' THEN 'thousandths of a processor' ELSE 'bytes' END AS unit,
  sum(count) AS count, CAST(sum(CAST(value AS DECIMAL(19, 0)) * count) AS BIGINT) AS total,
  CAST(sum(CAST(value AS DECIMAL(19, 0)) * count) AS DOUBLE) / sum(count) AS mean,
  sqrt(CAST(
      CAST(sum(CAST(value AS DECIMAL(19, 0)) * value * count) AS DECIMAL(38, 0))
        * CAST(sum(count) AS DECIMAL(19, 0))
      - CAST(sum(CAST(value AS DECIMAL(19, 0)) * count) AS DECIMAL(38, 0))
        * CAST(sum(CAST(value AS DECIMAL(19, 0)) * count) AS DECIMAL(38, 0)) AS DOUBLE))
    / sum(count) AS deviation,
  min(CASE WHEN seen * 100 >= whole * 50 THEN value END) AS p50,
  min(CASE WHEN seen * 100 >= whole * 95 THEN value END) AS p95,
  min(CASE WHEN seen * 100 >= whole * 99 THEN value END) AS p99,
  max(value) AS max
FROM walked GROUP BY ALL;
