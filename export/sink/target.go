// Package sink opens the sinks of package export by their URL.
//
//	file:PATH                                     lines in a file
//	stdout:                                       lines on standard output
//	syslog+tls://HOST:6514  syslog+tcp://         RFC 5424, octet counting
//	hec+https://HOST:8088   hec+http://           Splunk HTTP Event Collector
//	elastic+https://HOST:9200/DATA-STREAM         Elasticsearch bulk API
//	otlp+grpcs://HOST:4317  otlp+grpc://          OpenTelemetry logs over gRPC
//	otlp+https://HOST:4318  otlp+http://          OpenTelemetry logs over HTTP
//	tls+nats://HOST:4222/SUBJECT  nats://         JetStream; several hosts with commas
//	s3://BUCKET/PREFIX?endpoint=HOST&region=R     objects
//
// A URL never contains a credential: credentials come from files or the environment. Plain text to another machine is
// refused unless Insecure allows it.
package sink

import (
	"fmt"
	"time"

	"github.com/docker/go-units"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/format/cef"
	"github.com/custody-project/custody/export/format/ecs"
	"github.com/custody-project/custody/export/format/native"
	"github.com/custody-project/custody/export/format/ocsf"
	"github.com/custody-project/custody/export/sink/peer"
)

// Target is one sink in a host's configuration. Name and To are required.
type Target struct {
	Name string `yaml:"name"`
	To   string `yaml:"to"`

	Format  string `yaml:"format"`  // ocsf (the default), ecs, cef, native or json
	Version string `yaml:"version"` // of the format, if it has several

	// Selection of events; see export.Filter.
	Tenant      string   `yaml:"tenant"`
	Kinds       []string `yaml:"kinds"`
	Observer    string   `yaml:"observer"`
	MinSeverity string   `yaml:"min_severity"`

	// TLS.
	CA         string `yaml:"ca"`
	Cert       string `yaml:"cert"`
	Key        string `yaml:"key"`
	ServerName string `yaml:"server_name"`
	Insecure   bool   `yaml:"insecure"` // accepts plain text to another machine

	// Credentials: at most one of each pair.
	TokenFile    string `yaml:"token_file"` // hec, elastic (API key), otlp (bearer), nats (token)
	TokenEnv     string `yaml:"token_env"`
	User         string `yaml:"user"` // elastic, nats; s3: the access key
	PasswordFile string `yaml:"password_file"`
	PasswordEnv  string `yaml:"password_env"`
	CredsFile    string `yaml:"creds_file"` // nats: user JWT and seed
	NKeyFile     string `yaml:"nkey_file"`  // nats: seed

	Headers map[string]string `yaml:"headers"` // hec, elastic, otlp; none of them a credential

	// The size of a batch, and how long to wait for it. 0 is the sink's default.
	BatchEvents int           `yaml:"batch_events"`
	BatchBytes  Size          `yaml:"batch_bytes"`
	Timeout     time.Duration `yaml:"timeout"`
	MaxRefused  int           `yaml:"max_refused"` // refusals in a row, after which it halts
	DeadBytes   Size          `yaml:"dead_bytes"`  // of a file of dead letters
	DeadFiles   int           `yaml:"dead_files"`

	RotateBytes Size          `yaml:"rotate_bytes"` // file
	RotateAge   time.Duration `yaml:"rotate_age"`   // file
	Keep        int           `yaml:"keep"`         // file: rotated ones, 0 keeps all
	Gzip        bool          `yaml:"gzip"`         // file: rotated ones

	MaxMessage Size   `yaml:"max_message"` // syslog: the receiver's maximum; longer messages become dead letters
	Index      string `yaml:"index"`       // hec
	SourceType string `yaml:"sourcetype"`  // hec; custody:FORMAT
	NoAck      bool   `yaml:"no_ack"`      // hec: the token has no indexer acknowledgement; nats: a plain subject
}

// Size is a number of bytes, written like 64MiB.
type Size int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(b []byte) error {
	n, err := units.RAMInBytes(string(b))
	if err != nil || n < 0 {
		return fmt.Errorf("%.40q is not a size like 64MiB", b)
	}
	*s = Size(n)
	return nil
}

// Filter returns the target's selection of events.
func (t Target) Filter() (export.Filter, error) {
	f := export.Filter{Tenant: t.Tenant, Observer: audit.Observer(t.Observer)}
	if t.Observer != "" && f.Observer != audit.Host && f.Observer != audit.Guest {
		return f, fmt.Errorf("observer: %.40q is neither host nor guest", t.Observer)
	}
	for _, k := range t.Kinds {
		if !audit.Kind(k).Known() {
			return f, fmt.Errorf("kinds: there is no kind %.40q of events", k)
		}
		f.Kinds = append(f.Kinds, audit.Kind(k))
	}
	var err error
	if f.MinSeverity, err = export.ParseSeverity(t.MinSeverity); err != nil {
		err = fmt.Errorf("min_severity: %w", err)
	}
	return f, err
}

// Options returns the options of this target's exporter except Dir, Source, Format, Sink and Log.
func (t Target) Options() (export.Options, error) {
	f, err := t.Filter()
	if err != nil {
		return export.Options{}, fmt.Errorf("export %s: %w", t.Name, err)
	}
	return export.Options{Name: t.Name, Filter: f, Timeout: t.Timeout, MaxRefused: t.MaxRefused,
		Batch:     export.Batch{Items: t.BatchEvents, Bytes: int(t.BatchBytes)},
		DeadBytes: int64(t.DeadBytes), DeadFiles: t.DeadFiles}, nil
}

func (t Target) tls() peer.TLS {
	return peer.TLS{CA: t.CA, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName}
}

func (t Target) token() peer.Secret    { return peer.Secret{File: t.TokenFile, Env: t.TokenEnv} }
func (t Target) password() peer.Secret { return peer.Secret{File: t.PasswordFile, Env: t.PasswordEnv} }

// format returns the name of the format, with its default.
func (t Target) format() string {
	if t.Format == "" {
		return "ocsf"
	}
	return t.Format
}

// Encoding returns the format that the target names.
func (t Target) Encoding() (export.Format, error) { return Format(t.Format, t.Version) }

// Format returns a format by its name: ocsf (the default), ecs, cef, native or json; only ocsf has versions.
//
//	native  the record in an envelope with id, tenant, host and severity
//	json    the record alone, exactly as it was hashed
func Format(name, version string) (export.Format, error) {
	if version != "" && name != "" && name != "ocsf" {
		return nil, fmt.Errorf("the format %.40q has no versions to choose from", name)
	}
	switch name {
	case "", "ocsf":
		return ocsf.New(version)
	case "ecs":
		return ecs.New(), nil
	case "cef":
		return cef.New(), nil
	case "native":
		return native.New(), nil
	case "json":
		return export.JSON{}, nil
	}
	return nil, fmt.Errorf("%.40q is not a format: ocsf, ecs, cef, native or json", name)
}
