package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/custody-project/custody/export/sink"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/state/archive"
	"github.com/custody-project/custody/state/archive/dir"
	"github.com/custody-project/custody/state/archive/s3"
)

// PausedArchive is where paused sandboxes are archived. To and Group are required.
type PausedArchive struct {
	To    string `yaml:"to"`    // the path of a directory, or s3://BUCKET/PREFIX?endpoint=HOST&region=R
	Group string `yaml:"group"` // the name of the hosts that can fetch what this one archives
	// Key is the file of the archive's key, which all hosts of the group have; relative to $CUSTODY_HOME. Default: keys/archive.
	Key string `yaml:"key"`

	// The fields below are those of an export to S3; see sink.Target.
	CA           string `yaml:"ca"`
	ServerName   string `yaml:"server_name"`
	Insecure     bool   `yaml:"insecure"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	PasswordEnv  string `yaml:"password_env"`
}

// ErrNoArchive means that the host has no archive.
var ErrNoArchive = errors.New("this host has no archive of paused sandboxes: set paused.archive in " + ConfigFile)

// isDir reports whether the archive is a directory.
func (a *PausedArchive) isDir() bool { return filepath.IsAbs(a.To) }

// target returns the target of an export to the same bucket.
func (a *PausedArchive) target() sink.Target {
	return sink.Target{
		Name: "paused.archive", To: a.To, CA: a.CA, ServerName: a.ServerName, Insecure: a.Insecure,
		User: a.User, PasswordFile: a.PasswordFile, PasswordEnv: a.PasswordEnv,
	}
}

// check checks the settings, as far as that is possible without opening anything.
func (a *PausedArchive) check() error {
	switch {
	case a == nil:
		return nil
	case a.Group == "" || !validName(a.Group):
		return fmt.Errorf("paused.archive.group %.80q: name the hosts that can fetch what this one archives, with at most 64 letters, digits, '-', '_' or '.'", a.Group)
	case a.isDir():
		if *a != (PausedArchive{To: a.To, Group: a.Group, Key: a.Key}) {
			return errors.New("paused.archive: ca, server_name, insecure, user, password_file and password_env are of an archive in S3, and this one is a directory")
		}
		return nil
	case !strings.HasPrefix(a.To, "s3://"):
		return fmt.Errorf("paused.archive.to %.80q: want the absolute path of a directory, or s3://BUCKET/PREFIX?endpoint=HOST", a.To)
	}
	if err := a.target().Check(); err != nil {
		return fmt.Errorf("paused.archive: %w", err)
	}
	return nil
}

// OpenArchive opens the storage of the host's archive of paused sandboxes, for a process that does not use its key.
func OpenArchive(ctx context.Context, h *Host) (*archive.Archive, error) {
	a := h.Config().Paused.Archive
	if a == nil {
		return nil, ErrNoArchive
	}
	objects, err := a.objects()
	if err != nil {
		return nil, err
	}
	return archive.Open(ctx, objects, archive.Config{Group: a.Group})
}

func (a *PausedArchive) objects() (archive.Objects, error) {
	if a.isDir() {
		return dir.New(a.To)
	}
	o, err := a.target().S3()
	if err != nil {
		return nil, fmt.Errorf("paused.archive: %w", err)
	}
	return s3.New(s3.Options{Endpoint: o.Endpoint, Bucket: o.Bucket, Prefix: o.Prefix, Region: o.Region, TLS: o.TLS, Access: o.Access, Secret: o.Secret.Value})
}

// ArchiveKeyFile is the file of the archive's key.
func ArchiveKeyFile(h *Host) string {
	a := h.Config().Paused.Archive
	switch {
	case a == nil || a.Key == "":
		return h.keys("archive")
	case filepath.IsAbs(a.Key):
		return a.Key
	}
	return h.shared(a.Key)
}

// ArchiveKey returns the key of the archive. For a directory, its first use creates it; for S3, an administrator does.
func ArchiveKey(h *Host) state.Wrapper {
	if a := h.Config().Paused.Archive; a != nil && a.isDir() {
		return state.KeyFile(ArchiveKeyFile(h))
	}
	return state.SharedKeyFile(ArchiveKeyFile(h))
}
