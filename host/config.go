package host

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/goccy/go-yaml"

	"github.com/custody-project/custody/export/sink"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store/clickhouse"
	"github.com/custody-project/custody/vmm"
)

// ConfigFile is the host's configuration file below $CUSTODY_HOME. Without it the
// host has a key in a file, a store in SQLite, and no witnesses.
const ConfigFile = "host.yaml"

// Config is the contents of host.yaml: the destinations of this host's record, and the servers that attest it.
//
//	version: 1
//	tenant: acme
//	key: vault-transit:transit/custody-host     # or age:FILE and others; default: a file below keys/
//	store: clickhouse://reader@ch:9000/custody  # default: SQLite; with transport, where timeline reads
//	transport: {url: "tls://nats:4222", creds: /etc/custody/host.creds, monitor: "https://nats:8222"}
//	spool: 10GiB                                # of segments that the store does not have; then the record stalls
//	retain: {age: 720h, size: 50GiB}            # of segments that the store has and a checkpoint covers
//	paused: {budget: 20GiB}                     # disk for the states of paused sandboxes; archive: where they go later
//	delete_after: 2160h                         # deletes a whole run that long after its end; only with SQLite
//	log: {quorum: 1, witnesses: [{key: "witness+...", url: "https://witness/"}], stamp: {url: "https://tsa/", ca: tsa.pem}}
//	fleet: {root: "fleet.example+..."}          # the key that signs which hosts' keys are trusted
//	export: [{name: siem, to: "syslog+tls://siem:6514", format: ocsf}]
//	projects: {sources: [vault], vault: [secret/data/agents/*], egress: [{allow: "*.example.com"}]}
//	notify: {webhooks: [{name: ops, url: "https://ops.example.com/custody", key: "file:/etc/custody/ops.key"}]}
//	serve: {listen: "0.0.0.0:8443", names: [custody.example.com], cert: tls.crt, key: tls.key}
//	quotas: {host: {cpus: 64, memory: 256GiB}, tenant: {sandboxes: 50}, tenants: {acme: {sandboxes: 200}}}
type Config struct {
	Version    int        `yaml:"version"`
	Tenant     string     `yaml:"tenant"`
	Key        string     `yaml:"key"`
	Store      string     `yaml:"store"`
	ClickHouse ClickHouse `yaml:"clickhouse"`
	Transport  *Transport `yaml:"transport"`
	Spool      Bytes      `yaml:"spool"`
	Retain     Retain     `yaml:"retain"`
	Paused     Paused     `yaml:"paused"`
	// DeleteAfter is the time after a run's end at which it is deleted from this host and from SQLite; 0: never.
	DeleteAfter Duration    `yaml:"delete_after"`
	Log         Log         `yaml:"log"`
	Fleet       FleetConfig `yaml:"fleet"`
	Isolation   Isolation   `yaml:"isolation"`
	Commands    Commands    `yaml:"commands"`
	// Projects limits the sources and destinations that project files may name.
	Projects project.Allowed `yaml:"projects"`
	Export   []sink.Target   `yaml:"export"`
	// Serve sets the users and the address of custody serve.
	Serve access.Config `yaml:"serve"`
	// Notify sets the messages that this host sends, and the commands that it runs for them.
	Notify notify.Config `yaml:"notify"`
	// Quotas limits what the tenants of this host, and their projects, use.
	Quotas quota.Config `yaml:"quotas"`
}

// ClickHouse sets how the tables are created if store names ClickHouse.
type ClickHouse struct {
	Cluster    string `yaml:"cluster"`     // creates replicated tables on this cluster
	KeeperPath string `yaml:"keeper_path"` // of the replicas
	Sharded    bool   `yaml:"sharded"`     // each run is whole on one shard
	// Retain is the time for which records of a class (output, activity, evidence) are kept, in whole days.
	Retain map[string]Duration `yaml:"retain"`
}

func (c ClickHouse) options() clickhouse.Options {
	o := clickhouse.Options{Cluster: c.Cluster, KeeperPath: c.KeeperPath, Sharded: c.Sharded}
	for class, d := range c.Retain {
		if o.Retain == nil {
			o.Retain = map[clickhouse.Class]time.Duration{}
		}
		o.Retain[clickhouse.Class(class)] = time.Duration(d)
	}
	return o
}

// Transport is a NATS cluster that carries segments to a store elsewhere. All fields but
// URL, Monitor and Wait are paths of files.
type Transport struct {
	URL     string `yaml:"url"` // one, or several separated by commas
	CA      string `yaml:"ca"`
	Cert    string `yaml:"cert"`
	Key     string `yaml:"key"`
	Creds   string `yaml:"creds"`
	NKey    string `yaml:"nkey"`
	Monitor string `yaml:"monitor"`
	// Wait is the time that the end of a run waits for the store; the next command ships what is left.
	Wait Duration `yaml:"wait"`
}

// Retain bounds what stays on this host. Zero is no bound. Segments that the store does not have,
// or that no checkpoint covers, stay in any case.
type Retain struct {
	Age  Duration `yaml:"age"`
	Size Bytes    `yaml:"size"`
}

// Paused bounds the stored states of paused sandboxes.
type Paused struct {
	Budget  Bytes          `yaml:"budget"` // 0: DefaultPaused
	Archive *PausedArchive `yaml:"archive"`
}

// DefaultPaused is the disk budget of paused sandboxes in bytes.
const DefaultPaused = 20 << 30

// Limit returns the budget in bytes.
func (p Paused) Limit() int64 { return cmp.Or(int64(p.Budget), DefaultPaused) }

// Isolation is how the runs of this host are isolated.
type Isolation struct {
	// Require is the only tier that runs may have; empty: the best one that works.
	Require string `yaml:"require"`
	// Probe bounds the time for which a guest may boot when a tier is tried; 0: depends
	// on the measured speed of the host.
	Probe Duration `yaml:"probe"`
	// Firecracker and Jailer are the paths of Firecracker's programs, of one release; empty: the tier is not used.
	Firecracker string `yaml:"firecracker"`
	Jailer      string `yaml:"jailer"`
	// Runsc is the path of gVisor's runsc; empty: /usr/bin/runsc or /usr/local/bin/runsc.
	Runsc string `yaml:"runsc"`
}

// Commands sets how the commands of cmd: sources run on this host.
type Commands struct {
	// User runs them; empty: the user that runs custody. It cannot be root.
	User string `yaml:"user"`
}

// Log names the servers that attest the host's log of manifests.
type Log struct {
	Witnesses []Witness `yaml:"witnesses"`
	Quorum    int       `yaml:"quorum"` // of the witnesses; default all of them
	Stamp     *Stamp    `yaml:"stamp"`
	// Wait is the time that the end of a run waits for its checkpoint; default 10 s.
	Wait Duration `yaml:"wait"`
}

// Witness is a server that cosigns checkpoints (C2SP tlog-witness).
type Witness struct {
	Key string `yaml:"key"` // its verifier key
	URL string `yaml:"url"`
}

// Stamp is a time-stamping authority (RFC 3161).
type Stamp struct {
	URL string `yaml:"url"`
	CA  string `yaml:"ca"` // file with its roots
}

// Duration is a time.Duration in Go's notation: 90s, 720h.
type Duration time.Duration

// UnmarshalYAML reads the duration from a string.
func (d *Duration) UnmarshalYAML(b []byte) error {
	v, err := time.ParseDuration(scalar(b))
	if err != nil || v < 0 {
		return fmt.Errorf("%s is not a duration: write 90s, 15m or 720h", bytes.TrimSpace(b))
	}
	*d = Duration(v)
	return nil
}

// Bytes is a size: 512MiB, 10GiB.
type Bytes int64

// UnmarshalYAML reads the size from a string.
func (n *Bytes) UnmarshalYAML(b []byte) error {
	v, err := units.RAMInBytes(scalar(b))
	if err != nil || v < 0 {
		return fmt.Errorf("%s is not a size: write 512MiB or 10GiB", bytes.TrimSpace(b))
	}
	*n = Bytes(v)
	return nil
}

func scalar(b []byte) string { return strings.Trim(strings.TrimSpace(string(b)), `"'`) }

// ConfigError is a host.yaml that cannot be used.
type ConfigError struct {
	Path string
	Err  error
}

// Error implements error.
func (e *ConfigError) Error() string { return e.Path + ": " + strings.TrimSpace(e.Err.Error()) }

// Unwrap returns the error in the file.
func (e *ConfigError) Unwrap() error { return e.Err }

// Hint returns the remedy.
func (e *ConfigError) Hint() string {
	return "docs/operations.md lists the settings of host.yaml; the file is optional"
}

// loadConfig reads dir's host.yaml. Without the file it returns the zero Config.
func loadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, ConfigFile)
	text, err := regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil
	}
	var c Config
	if err == nil {
		err = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict(), yaml.DisallowUnknownField()).Decode(&c)
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Config{}, &ConfigError{path, err}
	}
	return c, nil
}

func (c *Config) check() error {
	switch {
	case c.Version != 1:
		return fmt.Errorf("version is %d, want 1", c.Version)
	case !validName(c.Tenant):
		return fmt.Errorf("tenant %q: want at most 64 letters, digits, '-', '_' or '.'", c.Tenant)
	case c.Isolation.Require != "" && !slices.Contains(vmm.Tiers(), c.Isolation.Require):
		return fmt.Errorf("isolation.require %q: want one of %s", c.Isolation.Require, strings.Join(vmm.Tiers(), ", "))
	case c.Transport != nil && c.Transport.URL == "":
		return errors.New("transport has no url")
	case c.Log.Quorum < 0 || c.Log.Quorum > len(c.Log.Witnesses):
		return fmt.Errorf("log.quorum is %d of %d witnesses", c.Log.Quorum, len(c.Log.Witnesses))
	case c.Log.Stamp != nil && (c.Log.Stamp.URL == "" || c.Log.Stamp.CA == ""):
		return errors.New("log.stamp needs a url and a ca")
	}
	if err := c.checkDeleteAfter(); err != nil {
		return err
	}
	if _, err := parseKeyKind(c.Key); err != nil {
		return err
	}
	if err := c.Fleet.check(); err != nil {
		return err
	}
	if _, err := c.Log.policy(); err != nil {
		return fmt.Errorf("log.witnesses: %w", err)
	}
	if err := c.Serve.Check(); err != nil {
		return err
	}
	if err := c.Notify.Check(); err != nil {
		return err
	}
	if err := c.Paused.Archive.check(); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, t := range c.Export {
		if !validName(t.Name) || t.Name == "" || names[t.Name] {
			return fmt.Errorf("export %q: each sink needs a unique name of letters, digits, '-', '_' or '.'", t.Name)
		}
		names[t.Name] = true
		if err := t.Check(); err != nil {
			return fmt.Errorf("export %s: %w", t.Name, err)
		}
	}
	return nil
}

// checkDeleteAfter refuses a setting that this host cannot carry out, or that contradicts another one.
func (c *Config) checkDeleteAfter() error {
	switch {
	case c.DeleteAfter == 0:
	case c.Transport != nil || c.Store != "" && c.Store != "sqlite":
		return errors.New("delete_after needs SQLite as the store, and this host has another one: clickhouse.retain bounds what ClickHouse keeps, and retain what stays on this host")
	case c.Retain.Age >= c.DeleteAfter:
		return fmt.Errorf("retain.age is %v and delete_after %v: the segments would stay longer than the run",
			time.Duration(c.Retain.Age), time.Duration(c.DeleteAfter))
	}
	return nil
}

func validName(s string) bool {
	return len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.", r)
	})
}
