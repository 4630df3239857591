-- One row a record. body is the exact JSON that was hashed; the other columns
-- are taken from it to search by. Clustered by (run, seq): a timeline reads
-- neighbouring pages, and a second copy of a row cannot exist.
CREATE TABLE records (
    run      TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    time     INTEGER NOT NULL, -- nanoseconds since 1970, UTC
    kind     TEXT    NOT NULL,
    step     TEXT    NOT NULL,
    observer TEXT    NOT NULL,
    proc     TEXT    NOT NULL,
    body     BLOB    NOT NULL,
    salt     BLOB    NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;

-- The chain of signed manifests of a run; bytes is exactly what was signed.
CREATE TABLE manifests (
    run   TEXT    NOT NULL,
    idx   INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    root  BLOB    NOT NULL,
    bytes BLOB    NOT NULL,
    PRIMARY KEY (run, idx)
) WITHOUT ROWID;

-- A summary a run, folded from its records in the transaction that adds them.
-- "end" and exit_code are NULL until the run's end event is there.
CREATE TABLE runs (
    run        TEXT    NOT NULL PRIMARY KEY,
    project    TEXT    NOT NULL,
    start      INTEGER,          -- of the start event, nanoseconds since 1970
    first_time INTEGER NOT NULL, -- of the earliest record
    "end"      INTEGER,
    status     TEXT    NOT NULL, -- running, sealed, interrupted
    result     TEXT    NOT NULL,
    exit_code  INTEGER,
    tier       TEXT    NOT NULL,
    mode       TEXT    NOT NULL,
    template   TEXT    NOT NULL,
    events     INTEGER NOT NULL,
    findings   INTEGER NOT NULL,
    gaps       INTEGER NOT NULL,
    lost       INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX runs_by_start ON runs (coalesce(start, first_time));
