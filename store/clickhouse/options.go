package clickhouse

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/custody-project/custody/internal/endpoint"
	"github.com/custody-project/custody/internal/regular"
)

// Options are options outside the DSN. The zero value is right for one server.
type Options struct {
	// Retain is how long records of a class are kept, from the day of their ingest, in whole
	// days; a class that is not listed is kept indefinitely. nil leaves the tables' setting: only
	// one of the programs that share a database needs to set it.
	Retain map[Class]time.Duration
	// Cluster is the name of a cluster in the servers' configuration. With it all tables are
	// created ON CLUSTER and replicated; the servers' macros {shard} and {replica} name the replicas.
	Cluster string
	// KeeperPath is the path of the replicas in Keeper, "" for /clickhouse/tables/{shard}/DATABASE/TABLE.
	KeeperPath string
	// Sharded creates a Distributed table over each replicated one: all rows of a run are on one shard.
	Sharded bool
	// Settle is how long after its stamp a segment appears in the feed: more than the duration of a commit
	// and the difference of the servers' clocks. 0 means 5 s.
	Settle time.Duration
	// Server has the contents of the files that the DSN names, for a process that cannot read them; nil: Open reads them.
	Server *endpoint.Server
}

const defaultSettle = 5 * time.Second

// Class determines how long a record is kept; Options.Retain has the time. docs/clickhouse.md lists the kinds.
type Class string

// The classes of records.
const (
	Output   Class = "output"   // what steps wrote to their terminals
	Activity Class = "activity" // what processes did: exec, exit, file, dns, flow, http
	Evidence Class = "evidence" // everything else: runs, steps, policies, credentials, findings, gaps, ...
)

// Classes returns all classes.
func Classes() []Class { return []Class{Output, Activity, Evidence} }

func (o Options) check() error {
	for class, keep := range o.Retain {
		if class != Output && class != Activity && class != Evidence {
			return fmt.Errorf("%q is not a class of records: want output, activity or evidence", class)
		}
		if keep < 24*time.Hour || keep%(24*time.Hour) != 0 {
			return fmt.Errorf("class %s cannot be kept for %s: retention is in whole days, at least one", class, keep)
		}
	}
	if o.Sharded && o.Cluster == "" {
		return errors.New("sharding needs the name of a cluster")
	}
	if o.Settle < 0 {
		return fmt.Errorf("settle is %s", o.Settle)
	}
	return nil
}

// parse parses a DSN of clickhouse-go, native (clickhouse://) or http(s)://, with three
// additional parameters, the names of PEM files: ca (of the server's certificate), cert and key.
func parse(dsn string, given *endpoint.Server) (*driver.Options, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("the ClickHouse DSN is not a URL") // the parser's error would contain the password
	}
	files := u.Query()
	rest := u.Query()
	for _, name := range []string{"ca", "cert", "key"} {
		rest.Del(name)
	}
	u.RawQuery = rest.Encode()
	o, err := driver.ParseDSN(u.String())
	if err != nil {
		return nil, fmt.Errorf("read the ClickHouse DSN: %w", err)
	}
	if o.Auth.Database == "" {
		o.Auth.Database = "default"
	}
	if err := useFiles(o, files, given); err != nil {
		return nil, err
	}
	// An insert is answered when it is in a part on disk, not when it is buffered.
	o.Settings["async_insert"] = 0
	o.Settings["insert_deduplicate"] = 1
	return o, nil
}

// Files reads the files that a DSN names in ca, cert and key, for Options.Server.
func Files(dsn string) (*endpoint.Server, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("the ClickHouse DSN is not a URL") // the parser's error would contain the password
	}
	return readFiles(u.Query())
}

func readFiles(files url.Values) (*endpoint.Server, error) {
	var s endpoint.Server
	for name, into := range map[string]*[]byte{"ca": &s.Authorities, "cert": &s.Certificate, "key": &s.Key} {
		path := files.Get(name)
		if path == "" {
			continue
		}
		var err error
		if *into, err = regular.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// useFiles has connections use certificates that the DSN names; given, if it is not nil, has them.
func useFiles(o *driver.Options, files url.Values, given *endpoint.Server) (err error) {
	ca, cert, key := files.Get("ca"), files.Get("cert"), files.Get("key")
	if ca == "" && cert == "" && key == "" {
		return nil
	}
	if o.TLS == nil {
		return errors.New("the ClickHouse DSN names certificates but lacks secure=true")
	}
	if (cert == "") != (key == "") {
		return errors.New("the ClickHouse DSN names one of cert and key: a client certificate needs both")
	}
	if given == nil {
		if given, err = readFiles(files); err != nil {
			return err
		}
	}
	c, err := given.TLS()
	if err != nil {
		return fmt.Errorf("ca, cert and key of the ClickHouse DSN: %w", err)
	}
	o.TLS.MinVersion, o.TLS.RootCAs, o.TLS.GetClientCertificate = c.MinVersion, c.RootCAs, c.GetClientCertificate
	return nil
}

// quote formats s as a string literal of ClickHouse's SQL.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\x00", `\0`).Replace(s) + "'"
}

// name formats s as an identifier.
func name(s string) string {
	return "`" + strings.NewReplacer(`\`, `\\`, "`", "\\`").Replace(s) + "`"
}
