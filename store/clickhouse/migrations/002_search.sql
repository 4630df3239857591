-- What questions over all runs are answered by. seq is for the pages of one long run.
ALTER TABLE {{local "records"}}{{on}} ADD INDEX IF NOT EXISTS by_seq seq TYPE minmax GRANULARITY 1;
ALTER TABLE {{local "records"}}{{on}} ADD INDEX IF NOT EXISTS by_moment time TYPE minmax GRANULARITY 1;
ALTER TABLE {{local "records"}}{{on}} ADD INDEX IF NOT EXISTS by_path path TYPE bloom_filter(0.01) GRANULARITY 1;
ALTER TABLE {{local "records"}}{{on}} ADD INDEX IF NOT EXISTS by_host host TYPE bloom_filter(0.01) GRANULARITY 1;
ALTER TABLE {{local "records"}}{{on}} ADD INDEX IF NOT EXISTS by_hash hash TYPE bloom_filter(0.001) GRANULARITY 1;
ALTER TABLE {{local "records"}}{{on}} ADD INDEX IF NOT EXISTS by_secret secret TYPE set(64) GRANULARITY 1;
ALTER TABLE {{local "records"}}{{on}} ADD INDEX IF NOT EXISTS by_rule rule TYPE set(64) GRANULARITY 1;
ALTER TABLE {{local "segments"}}{{on}} ADD INDEX IF NOT EXISTS by_run run TYPE bloom_filter(0.001) GRANULARITY 1;
-- The order by time, as places in the part: 8 bytes a record and no second copy of it.
ALTER TABLE {{local "records"}}{{on}} ADD PROJECTION IF NOT EXISTS by_time (SELECT _part_offset ORDER BY tenant, time);
