package clickhouse

import (
	"fmt"
	"strings"
	"text/template"
)

// schema generates the DDL of one database, in the variant of the options.
//
//	one server     records                        ReplacingMergeTree
//	a cluster      records                        ReplicatedReplacingMergeTree ON CLUSTER
//	with shards    records -> records_local       Distributed over the replicated one
type schema struct {
	database string
	Options
}

// local returns the name of the table with the rows.
func (s schema) local(table string) string {
	if s.Sharded {
		table += "_local"
	}
	return table
}

// on returns the clause that runs a statement on the cluster.
func (s schema) on() string {
	if s.Cluster == "" {
		return ""
	}
	return " ON CLUSTER " + quote(s.Cluster)
}

// engine returns the table's engine. arg is the version column of a Replacing one, if any.
func (s schema) engine(table, kind string, arg ...string) string {
	if s.Cluster == "" {
		return kind + "(" + strings.Join(arg, ", ") + ")"
	}
	path := s.KeeperPath
	if path == "" {
		path = "/clickhouse/tables/{shard}"
	}
	path = strings.TrimSuffix(path, "/") + "/" + s.database + "/" + s.local(table)
	return "Replicated" + kind + "(" + strings.Join(append([]string{quote(path), "'{replica}'"}, arg...), ", ") + ")"
}

// settings are those of every table with rows. An acknowledged insert is on
// disk, and so is the result of a merge before its sources are removed, one minute later.
func (s schema) settings() string {
	window := "non_replicated_deduplication_window = 10000"
	if s.Cluster != "" {
		window = "replicated_deduplication_window = 10000"
	}
	return window + ", fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1, " +
		"old_parts_lifetime = 60, deduplicate_merge_projection_mode = 'rebuild'"
}

// sharded returns the statements that create the Distributed tables, none without shards.
func (s schema) sharded(tables ...string) []string {
	if !s.Sharded {
		return nil
	}
	var ddl []string
	for _, t := range tables {
		ddl = append(ddl, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s%s AS %s ENGINE = Distributed(%s, %s, %s, cityHash64(tenant, run))",
			t, s.on(), s.local(t), quote(s.Cluster), quote(s.database), quote(s.local(t))))
	}
	return ddl
}

// versions creates the table of the schema's versions.
func (s schema) versions() string {
	return "CREATE TABLE IF NOT EXISTS " + s.local("schema_versions") + s.on() +
		" (version UInt32, at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')) ENGINE = " +
		s.engine("schema_versions", "ReplacingMergeTree", "at") + " ORDER BY version"
}

// statements fills in a migration's file and splits it at the semicolons that end lines.
func (s schema) statements(file string) ([]string, error) {
	text, err := migrations.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := template.New(file).Funcs(template.FuncMap{
		"local": s.local, "on": s.on, "engine": s.engine, "settings": s.settings, "sharded": s.sharded,
	}).Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	if err := t.Execute(&b, nil); err != nil {
		return nil, err
	}
	var all []string
	for _, stmt := range strings.Split(b.String(), ";\n") {
		if stmt = withoutComments(stmt); stmt != "" {
			all = append(all, stmt)
		}
	}
	return all, nil
}

func withoutComments(stmt string) string {
	lines := strings.Split(stmt, "\n")
	kept := lines[:0]
	for _, line := range lines {
		if !strings.HasPrefix(line, "--") {
			kept = append(kept, line)
		}
	}
	return strings.TrimSpace(strings.Join(kept, "\n"))
}

// forever is a time beyond any retention: DateTime ends in 2106.
const forever = 4102444800 // 2100-01-01

// retention returns the ends of the ALTERs that set the tables' TTL to Retain, and the comment with that value. The
// time is computed in seconds and clamped, so that no number of days can wrap around into the past.
func (s schema) retention() (ttl, comment string) {
	comment = "retain:"
	ttl = "multiIf("
	for _, class := range Classes() {
		if keep, ok := s.Retain[class]; ok {
			seconds := int64(keep.Seconds())
			ttl += fmt.Sprintf("class = %s, least(toInt64(toUnixTimestamp(ingested)) + %d, %d), ", quote(string(class)), seconds, forever)
			comment += fmt.Sprintf(" %s=%dd", class, seconds/86400)
		}
	}
	return fmt.Sprintf("toDateTime(%stoInt64(%d)), 'UTC')", ttl, forever), comment
}
