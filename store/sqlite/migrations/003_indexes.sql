-- Searches over all runs, newest first.
CREATE INDEX records_by_time ON records (time);
CREATE INDEX records_by_path ON records (path, time) WHERE path IS NOT NULL;
CREATE INDEX records_by_host ON records (host, time) WHERE host IS NOT NULL;
CREATE INDEX records_by_hash ON records (hash, time) WHERE hash IS NOT NULL;
CREATE INDEX records_by_secret ON records (secret, time) WHERE secret IS NOT NULL;
CREATE INDEX records_by_rule ON records (rule, time) WHERE rule IS NOT NULL;
