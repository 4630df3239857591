package home

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/stamp"
	"github.com/custody-project/custody/audit/witness"
	"github.com/custody-project/custody/internal/regular"
)

// manifestLog is the host's log of manifests, open for appending. It opens in the background: a run must not wait for
// it before there is anything to add.
type manifestLog struct {
	home   *Home
	opened chan struct{} // closed when log and err are set
	log    *hostlog.Log
	err    error
	// brief is for a caller with many runs: once a checkpoint has failed, it requests no more.
	brief  bool
	failed error // of one goroutine at a time
}

// openManifestLog begins to open the log and returns immediately.
func (h *Home) openManifestLog(ctx context.Context) (*manifestLog, error) {
	n := &manifestLog{home: h, opened: make(chan struct{})}
	key, err := h.Key()
	if err != nil {
		return nil, err
	}
	go func() { // close waits for it
		defer close(n.opened)
		n.log, n.err = h.openLog(ctx, key)
	}()
	return n, nil
}

func (h *Home) openLog(ctx context.Context, key proof.Key) (*hostlog.Log, error) {
	keys, err := h.verifiers()
	if err != nil {
		return nil, err
	}
	own, err := key.Verifier() // another process may have rotated the key since it was read
	if err != nil {
		return nil, err
	}
	o := hostlog.Options{Dir: h.path("log"), Signer: key, Verifier: own, Older: keys, Warn: func(err error) { h.warn(err.Error()) }}
	if o.Witnesses, err = h.config.Log.policy(); err != nil {
		return nil, err
	}
	return hostlog.Open(ctx, o)
}

// policy is that of the witnesses; nil without any.
func (l Log) policy() (*witness.Policy, error) {
	if len(l.Witnesses) == 0 {
		return nil, nil
	}
	var text, group strings.Builder
	for i, w := range l.Witnesses {
		fmt.Fprintf(&text, "witness w%d %s %s\n", i, w.Key, w.URL)
		fmt.Fprintf(&group, " w%d", i)
	}
	fmt.Fprintf(&text, "group witnesses %d%s\nquorum witnesses\n", cmp.Or(l.Quorum, len(l.Witnesses)), group.String())
	return witness.ParsePolicy([]byte(text.String()))
}

// add puts an entry into the log and returns its index. With again it is looked for first.
func (n *manifestLog) add(ctx context.Context, entry []byte, again bool) (uint64, error) {
	<-n.opened
	if n.err != nil {
		return 0, n.err
	}
	if again {
		if r, err := n.home.LogReader(); err == nil {
			if index, err := r.Index(ctx, entry); err == nil {
				return index, nil
			}
		}
	}
	return n.log.Add(ctx, entry)
}

// publish waits for a checkpoint over index, has it stamped where host.yaml asks for
// it, and keeps the stamp beside the log. It returns the checkpoint.
func (n *manifestLog) publish(ctx context.Context, index uint64) (checkpoint []byte, err error) {
	<-n.opened
	if n.err != nil {
		return nil, n.err
	}
	if n.failed != nil {
		return nil, n.failed
	}
	wait := 10 * time.Second
	if n.home.config.Log.Wait > 0 {
		wait = time.Duration(n.home.config.Log.Wait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if checkpoint, err = n.log.Publish(ctx, index); err != nil {
		if n.brief {
			n.failed = err
		}
		return nil, err
	}
	if n.home.config.Log.Stamp == nil {
		return checkpoint, nil
	}
	return checkpoint, n.home.stamp(ctx, checkpoint)
}

// enter puts an entry into the log, if it is not there, and has a checkpoint made over it.
func (n *manifestLog) enter(ctx context.Context, entry []byte) error {
	index, err := n.add(ctx, entry, true)
	if err != nil {
		return err
	}
	_, err = n.publish(ctx, index)
	return err
}

func (n *manifestLog) close(ctx context.Context) error {
	<-n.opened
	if n.log == nil {
		return nil
	}
	return n.log.Close(ctx)
}

// stamp gets a time stamp of a checkpoint from the authority. It is stored beside the log under the checkpoint's hash.
func (h *Home) stamp(ctx context.Context, checkpoint []byte) error {
	path := h.stampFile(checkpoint)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	roots, err := stamp.LoadRoots(h.config.Log.Stamp.CA)
	if err != nil {
		return fmt.Errorf("time stamp: %w", err)
	}
	token, err := stamp.Client{URL: h.config.Log.Stamp.URL, Roots: roots}.Stamp(ctx, checkpoint)
	if err != nil {
		return fmt.Errorf("time stamp: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return errors.Join(regular.WriteFile(path+".tmp", token, 0o600), os.Rename(path+".tmp", path))
}

func (h *Home) stampFile(checkpoint []byte) string {
	return h.path("stamps", proof.Digest(checkpoint).String()+".tsr")
}

// LogReader opens the host's log for reading. Before the first entry it is fs.ErrNotExist.
func (h *Home) LogReader() (*hostlog.Reader, error) {
	keys, err := h.verifiers()
	if err != nil {
		return nil, err
	}
	return hostlog.OpenReader(h.path("log"), keys[0], keys[1:]...)
}

// checkpoint is the last one of the host's log, checked.
func (h *Home) checkpoint(ctx context.Context, r *hostlog.Reader) (proof.Checkpoint, error) {
	signed, err := r.Checkpoint(ctx)
	if err != nil {
		return proof.Checkpoint{}, err
	}
	trusted, err := h.Trusted()
	if err != nil {
		return proof.Checkpoint{}, err
	}
	n, err := note.Open(signed, trusted)
	if err != nil {
		return proof.Checkpoint{}, err
	}
	return proof.ParseCheckpoint(n.Text)
}
