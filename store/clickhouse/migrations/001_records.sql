-- One row a record. body is the exact JSON that was hashed, leaf the hash of 0x00, salt and body;
-- the other columns are taken from body to search by. body is empty where the record was erased.
--
-- Equal rows become one when parts are merged; until then readers take one of each. leaf stands
-- at the end of the order so that rows that are not equal are never made one: a fork stays seen.
-- A part holds rows of one day of ingest and one class, so that retention drops whole parts.
CREATE TABLE IF NOT EXISTS {{local "records"}}{{on}} (
    tenant   LowCardinality(String),
    run      String CODEC(ZSTD(1)),
    time     DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    seq      UInt64 CODEC(Delta, ZSTD(1)),
    leaf     FixedString(32) CODEC(NONE),
    class    Enum8('output' = 1, 'activity' = 2, 'evidence' = 3),
    ingested DateTime('UTC') DEFAULT now('UTC') CODEC(Delta, ZSTD(1)),
    root     FixedString(32) CODEC(ZSTD(1)),
    kind     LowCardinality(String),
    observer LowCardinality(String),
    step     LowCardinality(String),
    proc     String CODEC(ZSTD(1)),
    path     String CODEC(ZSTD(1)),
    host     String CODEC(ZSTD(1)),
    hash     String CODEC(ZSTD(1)),
    secret   LowCardinality(String),
    rule     LowCardinality(String),
    salt     FixedString(16) CODEC(NONE),
    body     String CODEC(ZSTD(3))
) ENGINE = {{engine "records" "ReplacingMergeTree"}}
PARTITION BY (toDate(ingested), class)
PRIMARY KEY (tenant, run, time, seq)
ORDER BY (tenant, run, time, seq, leaf)
SETTINGS {{settings}}, ttl_only_drop_parts = 1, index_granularity = 1024;

-- One row a segment, written last: its records are all there once it is. Besides the
-- signed manifest it has what its records add to the summary of the run.
CREATE TABLE IF NOT EXISTS {{local "segments"}}{{on}} (
    tenant     LowCardinality(String),
    host       LowCardinality(String),
    run        String CODEC(ZSTD(1)),
    idx        UInt64 CODEC(Delta, ZSTD(1)),
    first      UInt64 CODEC(Delta, ZSTD(1)),
    last       UInt64 CODEC(Delta, ZSTD(1)),
    count      UInt64 CODEC(ZSTD(1)),
    root       FixedString(32) CODEC(NONE),
    digest     FixedString(32) CODEC(NONE), -- of the manifest
    frames     FixedString(32) CODEC(NONE), -- of the numbers and leaves that came with it
    manifest   String CODEC(ZSTD(3)),
    ingested   DateTime('UTC') DEFAULT now('UTC') CODEC(Delta, ZSTD(1)),
    first_time Nullable(DateTime64(9, 'UTC')),
    last_seq   UInt64 CODEC(Delta, ZSTD(1)),
    start      Nullable(DateTime64(9, 'UTC')),
    end        Nullable(DateTime64(9, 'UTC')),
    project    LowCardinality(String),
    template   LowCardinality(String),
    tier       LowCardinality(String),
    mode       LowCardinality(String),
    result     LowCardinality(String),
    exit_code  Nullable(Int64),
    findings   UInt64 CODEC(ZSTD(1)),
    gaps       UInt64 CODEC(ZSTD(1)),
    lost       UInt64 CODEC(ZSTD(1))
) ENGINE = {{engine "segments" "ReplacingMergeTree"}}
PARTITION BY toYYYYMM(ingested)
ORDER BY (tenant, run, idx, digest, frames)
SETTINGS {{settings}}, index_granularity = 1024;

-- Segments in the order in which they were taken in, by the server's clock. One may stand here twice.
CREATE TABLE IF NOT EXISTS {{local "feed"}}{{on}} (
    stamp  DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    tenant LowCardinality(String),
    host   LowCardinality(String),
    run    String CODEC(ZSTD(1)),
    idx    UInt64 CODEC(ZSTD(1)),
    first  UInt64 CODEC(ZSTD(1)),
    last   UInt64 CODEC(ZSTD(1)),
    count  UInt64 CODEC(ZSTD(1))
) ENGINE = {{engine "feed" "MergeTree"}}
PARTITION BY toYYYYMM(stamp)
ORDER BY (stamp, tenant, run, idx)
SETTINGS {{settings}}, index_granularity = 1024;

{{range sharded "records" "segments" "feed"}}{{.}};
{{end}}
