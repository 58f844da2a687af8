-- Do the tables have what the brokers hold? By topic and partition.
-- missing: offsets of the brokers without a row or dead letter. doubled: offsets with several.
CREATE MATERIALIZED VIEW completeness AS
WITH places AS (
  SELECT kafka_topic, kafka_partition, kafka_offset, 1 AS is_row, 0 AS is_dead FROM records
  UNION ALL
  SELECT kafka_topic, kafka_partition, kafka_offset, 0 AS is_row, 1 AS is_dead FROM dead_letters
),
landed AS (
  SELECT
    kafka_topic AS topic,
    kafka_partition AS partition,
    kafka_offset AS at,
    sum(is_row) AS times_row,
    sum(is_dead) AS times_dead
  FROM places
  GROUP BY ALL
),
compared AS (
  SELECT
    cluster_offsets.*,
    times_row,
    times_dead,
    coalesce(at >= first_offset AND at < end_offset, false) AS inside
  FROM cluster_offsets
  LEFT JOIN landed USING (topic, partition)
),
counted AS (
  SELECT
    topic,
    partition,
    first_offset,
    end_offset,
    coalesce(sum(times_row) FILTER (WHERE inside), 0) AS rows,
    coalesce(sum(times_dead) FILTER (WHERE inside), 0) AS dead_letters,
    count_if(times_row + times_dead > 1) AS doubled,
    end_offset - first_offset - count_if(inside) AS missing
  FROM compared
  GROUP BY topic, partition, first_offset, end_offset
)
SELECT *, missing = 0 AND doubled = 0 AS complete FROM counted
