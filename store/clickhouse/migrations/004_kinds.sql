-- A value of a column together with the kind: what is in each part of the table, but in no record of that kind, is found
-- to be absent without reading. Parts that exist get it in the background.
ALTER TABLE {{local "records"}}{{on}} ADD INDEX IF NOT EXISTS by_kind
    (concat(toString(kind), ' ', path), concat(toString(kind), ' ', host), concat(toString(kind), ' ', hash)) TYPE bloom_filter(0.01) GRANULARITY 1;
ALTER TABLE {{local "records"}}{{on}} MATERIALIZE INDEX by_kind;
