package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/audit/wal/remote"
	"github.com/custody-project/custody/internal/regular"
)

// factsFile in a run's directory has the facts of its manifests. Its worker, which knows only the files of the log, cannot change it.
const factsFile = "facts"

// maxFacts bounds the file in bytes.
const maxFacts = 64 << 10

// DeadLog is the log of a sandbox whose processes died. Its bytes are not to be trusted.
type DeadLog struct {
	Run    string
	Files  *remote.Server
	Last   []byte          // the last manifest, which this host has signed; nil: none
	Facts  statement.Facts // of the manifests, if there is none yet
	Signer *sealer.Signer  // continues after Last; nil: another process has the key, see Keys.Use
	TagKey []byte          // of the redactor
}

// LogCloser closes a log in a process without privileges, and reports whether the run's end was missing in it.
type LogCloser func(ctx context.Context, d DeadLog) (interrupted bool, err error)

// writeFacts stores the facts of a run whose log a worker writes.
func (r *Run) writeFacts() error {
	text, err := json.Marshal(r.options.Facts)
	if err != nil {
		return err
	}
	if err := (wal.Disk{}).MkdirAll(r.Dir); err != nil {
		return err
	}
	return durable.Replace(filepath.Join(r.Dir, factsFile), text, 0o600)
}

// removeUnborn removes the directory of a run whose worker has written nothing. The worker must have ended.
func (r *Run) removeUnborn() error {
	if r.log != nil || r.host.RunLogs().begun(r.ID) {
		return nil
	}
	return os.RemoveAll(r.Dir)
}

// facts returns the facts of a run's manifests, before there is any. Logs of earlier versions have them in their first record only.
func (l RunLogs) facts(run string) (f statement.Facts, err error) {
	text, err := readSmall(filepath.Join(l.host.RunDir(run), factsFile), maxFacts)
	if errors.Is(err, fs.ErrNotExist) {
		return proof.FactsOf(l.host.RunDir(run))
	}
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	return f, err
}

// readSmall reads a file of at most so many bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, err
}

// lastManifest returns the last manifest of a log, nil if there is none. All must be signed by this host and form a chain.
func (l RunLogs) lastManifest(run string) (last []byte, m statement.Manifest, err error) {
	dir := l.host.RunDir(run)
	names, err := wal.Disk{}.ReadDir(dir)
	if err != nil {
		return nil, m, err
	}
	trusted, err := l.host.Keys().Trusted()
	if err != nil {
		return nil, m, err
	}
	next, index := uint64(1), uint64(0)
	for _, name := range names { // in the order of the seqs
		first, ok := wal.ParseName(name, wal.ManifestSuffix)
		if !ok {
			continue
		}
		signed, err := readSmall(filepath.Join(dir, name), statement.MaxNote)
		if err != nil {
			return nil, m, err
		}
		var prev merkle.Hash
		if last != nil {
			prev = statement.Digest(last)
		}
		m, err = statement.OpenManifest(signed, trusted)
		if err == nil && (m.Run != run || m.First != first || m.First < next || m.Segment != index || m.Prev != prev) {
			err = fmt.Errorf("it is not the manifest of segment %d of run %s", index, run)
		}
		if err != nil {
			return nil, m, fmt.Errorf("%w: %s: %w", wal.ErrDamaged, name, err)
		}
		last, next, index = signed, m.Last+1, index+1
	}
	return last, m, nil
}

// close closes the log of a sandbox whose process died, without reading its records. It reports whether the run's end was missing.
func (rc recovery) close(ctx context.Context, run string) (bool, error) {
	last, m, err := rc.host.RunLogs().lastManifest(run)
	if err != nil {
		return false, err
	}
	if last != nil && m.Closing != wal.Open {
		return false, nil
	}
	d := DeadLog{Run: run, Files: remote.NewServer(rc.host.RunDir(run)), Last: last}
	if last == nil {
		if d.Facts, err = rc.host.RunLogs().facts(run); err != nil {
			return false, err
		}
	}
	if d.Signer, err = rc.signer(d); err != nil {
		return false, err
	}
	if d.TagKey, err = rc.host.TagKey(); err != nil {
		return false, err
	}
	interrupted, err := rc.host.CloseLog(ctx, d)
	if err = errors.Join(err, d.Files.Close()); err != nil {
		return false, err
	}
	os.Remove(filepath.Join(rc.host.RunDir(run), controlSocket)) // the dead process left it
	return interrupted, nil
}

// signer returns the signer of a dead run's segments, nil if another process has the key.
func (rc recovery) signer(d DeadLog) (*sealer.Signer, error) {
	if rc.host.signing.client() != nil {
		return nil, nil
	}
	key, err := rc.host.Keys().Signing()
	if err != nil {
		return nil, err
	}
	if d.Last == nil {
		return sealer.NewSigner(key, d.Run, d.Facts), nil
	}
	trusted, err := rc.host.Keys().Trusted()
	if err != nil {
		return nil, err
	}
	return sealer.Resume(key, d.Run, d.Last, trusted)
}

// closes reports whether CloseLog closes the log of a run. This process has written other logs itself.
func (rc recovery) closes(run string) bool {
	return rc.host.CloseLog != nil && strings.HasPrefix(run, SandboxPrefix)
}
