-- What was erased, written before anything is removed, so that an original which comes (again)
-- afterwards is known for what it is.
CREATE TABLE IF NOT EXISTS {{local "erasures"}}{{on}} (
    tenant LowCardinality(String),
    run    String,
    seq    UInt64,
    at     DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = {{engine "erasures" "ReplacingMergeTree"}}
ORDER BY (tenant, run, seq)
SETTINGS {{settings}};

{{range sharded "erasures"}}{{.}};
{{end}}
