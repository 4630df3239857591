-- Pages of a tenant's runs.
CREATE INDEX runs_by_tenant ON runs (tenant, coalesce(start, first_time));

-- Records of the kinds that are rare, over all runs: findings, LLM API calls, accesses, gaps.
CREATE INDEX records_by_kind ON records (kind, time)
    WHERE kind NOT IN ('', 'output', 'exec', 'exit', 'file', 'dns', 'flow', 'http');
