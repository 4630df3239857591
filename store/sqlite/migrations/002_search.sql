-- What a record is about, NULL where it is not about such a thing, so that the
-- partial indexes below hold only rows that can be found by them. Code fills the
-- columns of rows that are there already. leaf is set on erased records, whose
-- body, salt and columns are empty.
ALTER TABLE records ADD COLUMN path TEXT;
ALTER TABLE records ADD COLUMN host TEXT;
ALTER TABLE records ADD COLUMN hash BLOB; -- 32 bytes for hex, else as it stands in the record
ALTER TABLE records ADD COLUMN secret TEXT;
ALTER TABLE records ADD COLUMN rule TEXT;
ALTER TABLE records ADD COLUMN leaf BLOB;

-- A run belongs to one tenant and one host.
ALTER TABLE runs ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN host TEXT NOT NULL DEFAULT '';

ALTER TABLE manifests ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE manifests ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE manifests ADD COLUMN count INTEGER NOT NULL DEFAULT 0;
UPDATE manifests SET count = (SELECT count(*) FROM records
    WHERE records.run = manifests.run AND seq BETWEEN manifests.first AND manifests.last);

-- Segments in the order in which they were taken in, one row for each that
-- brought something new. Writers take turns, so that ids become visible in order.
-- mark tells a row from that of another database with the same id.
CREATE TABLE feed (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    mark   BLOB    NOT NULL,
    tenant TEXT    NOT NULL,
    host   TEXT    NOT NULL,
    run    TEXT    NOT NULL,
    idx    INTEGER NOT NULL,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    count  INTEGER NOT NULL
);
INSERT INTO feed (mark, tenant, host, run, idx, first, last, count)
    SELECT randomblob(8), '', '', m.run, m.idx, m.first, m.last, m.count
    FROM manifests m LEFT JOIN runs r ON r.run = m.run
    ORDER BY coalesce(r.start, r.first_time), m.run, m.idx;

-- One row while erased bytes may still be somewhere in the file.
CREATE TABLE scrub (pending INTEGER PRIMARY KEY);
