-- The audit's facts: what has landed, by topic and ten minutes of event time. Event time is that of
-- the header ottla.audit (PRODUCER;EVENT_MS;NUMBER), without one the record's timestamp.
-- Latency is the time from there to the micro-batch that landed the record.
CREATE MATERIALIZED VIEW facts AS
WITH landed AS (
  SELECT kafka_topic, kafka_headers, kafka_timestamp, kafka_bytes, landed_at, false AS dead
  FROM records
  UNION ALL
  SELECT kafka_topic, kafka_headers, kafka_timestamp, kafka_bytes, landed_at, true AS dead
  FROM dead_letters
),
headers AS (
  SELECT *,
    CAST(try_element_at(filter(kafka_headers, h -> h.key = 'ottla.audit'), -1).value AS STRING)
      AS stamp
  FROM landed
),
stamps AS (
  SELECT *,
    coalesce(stamp RLIKE '^[A-Za-z0-9._-]{1,200};[0-9]{1,15};[0-9]{1,15}$', false) AS stamped
  FROM headers
),
timed AS (
  SELECT *,
    CASE WHEN stamped THEN CAST(split_part(stamp, ';', 2) AS BIGINT)
      ELSE unix_millis(kafka_timestamp)
    END AS event_ms
  FROM stamps
),
measured AS (
  SELECT *,
    timestamp_millis(event_ms - pmod(event_ms, 600000)) AS bucket,
    unix_millis(landed_at) - event_ms AS latency_ms
  FROM timed
)
SELECT
  kafka_topic AS topic,
  bucket,
  count(*) AS records,
  count_if(dead) AS dead,
  count_if(stamped) AS stamped,
  sum(kafka_bytes) AS bytes,
  CAST(round(avg(latency_ms)) AS BIGINT) AS latency_mean_ms,
  approx_percentile(latency_ms, 0.95) AS latency_p95_ms,
  approx_percentile(latency_ms, 0.99) AS latency_p99_ms,
  max(latency_ms) AS latency_max_ms
FROM measured
GROUP BY kafka_topic, bucket
