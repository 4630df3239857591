package host

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
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/stamp"
	"github.com/custody-project/custody/audit/witness"
	"github.com/custody-project/custody/internal/regular"
)

// manifestLog is the host's log of manifests, open for appending. It opens in the background, so that a run does not wait
// for it before it has something to add.
type manifestLog struct {
	host   *Host
	web    Web           // to witnesses and the time-stamping authority
	opened chan struct{} // closed when log and err are set
	log    *hostlog.Log
	err    error
	held   *os.File // see ManifestLog.hold
	// brief is set by a caller with many runs: after the first checkpoint has failed, it requests no more.
	brief  bool
	failed error // used by one goroutine at a time
}

// open starts to open the log and does not wait for it. The error is a ServedError if the log is that of a service.
func (l ManifestLog) open(ctx context.Context) (*manifestLog, error) {
	n := &manifestLog{host: l.host, web: l.host.Outside.Web(), opened: make(chan struct{})}
	key, err := l.host.Keys().Signing()
	if err != nil {
		return nil, err
	}
	if n.held, err = l.hold(ctx); err != nil {
		return nil, err
	}
	go func() { // close waits for it
		defer close(n.opened)
		n.log, n.err = l.openLog(ctx, key, n.web)
	}()
	return n, nil
}

func (l ManifestLog) openLog(ctx context.Context, key hostkey.Key, web Web) (*hostlog.Log, error) {
	keys, err := l.host.Keys().verifiers()
	if err != nil {
		return nil, err
	}
	own, err := key.Verifier() // another process may have rotated the key since it was read
	if err != nil {
		return nil, err
	}
	o := hostlog.Options{Dir: l.host.path("log"), Signer: key.Signer, Verifier: own, Older: keys, Transport: web, Warn: func(err error) { l.host.warn(err.Error()) }}
	if o.Witnesses, err = l.host.config.Log.policy(); err != nil {
		return nil, err
	}
	if o.Witnesses != nil || l.host.config.Log.Stamp != nil {
		web.Prepare(ctx)
	}
	log, err := hostlog.Open(ctx, o)
	if err == nil {
		_ = log.Prepare(ctx) // beside the run; the first add reports what is wrong
	}
	return log, err
}

// policy returns the policy of the witnesses; nil without any.
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

// add enters an entry into the log and returns its index. With again it first checks whether the entry is there.
func (n *manifestLog) add(ctx context.Context, entry []byte, again bool) (uint64, error) {
	<-n.opened
	if n.err != nil {
		return 0, n.err
	}
	if again {
		if r, err := n.host.ManifestLog().Reader(); err == nil {
			if index, err := r.Index(ctx, entry); err == nil {
				return index, nil
			}
		}
	}
	return n.log.Add(ctx, entry)
}

// publish waits for a checkpoint over index, gets a time stamp for it if host.yaml requires
// one, and stores the stamp beside the log. It returns the checkpoint.
func (n *manifestLog) publish(ctx context.Context, index uint64) (checkpoint []byte, err error) {
	<-n.opened
	if n.err != nil {
		return nil, n.err
	}
	if n.failed != nil {
		return nil, n.failed
	}
	wait := 10 * time.Second
	if n.host.config.Log.Wait > 0 {
		wait = time.Duration(n.host.config.Log.Wait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if checkpoint, err = n.log.Publish(ctx, index); err != nil {
		if n.brief {
			n.failed = err
		}
		return nil, err
	}
	if n.host.config.Log.Stamp == nil {
		return checkpoint, nil
	}
	return checkpoint, n.host.ManifestLog().stamp(ctx, checkpoint, n.web)
}

// enter enters an entry into the log, if it is not there, and waits for a checkpoint over it.
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
	defer letGo(n.held)
	if n.log == nil {
		return n.web.Close()
	}
	return errors.Join(n.log.Close(ctx), n.web.Close())
}

// stamp gets a time stamp of a checkpoint from the authority, and stores it beside the log under the checkpoint's hash.
func (l ManifestLog) stamp(ctx context.Context, checkpoint []byte, web Web) error {
	path := l.stampFile(checkpoint)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	roots, err := stamp.LoadRoots(l.host.config.Log.Stamp.CA)
	if err != nil {
		return fmt.Errorf("time stamp: %w", err)
	}
	token, err := stamp.Client{URL: l.host.config.Log.Stamp.URL, Roots: roots, Transport: web}.Stamp(ctx, checkpoint)
	if err != nil {
		return fmt.Errorf("time stamp: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return errors.Join(regular.WriteFile(path+".tmp", token, 0o600), os.Rename(path+".tmp", path))
}

func (l ManifestLog) stampFile(checkpoint []byte) string {
	return l.host.path("stamps", statement.Digest(checkpoint).String()+".tsr")
}

// Reader opens the host's log for reading. If the log is empty, the error is fs.ErrNotExist.
func (l ManifestLog) Reader() (*hostlog.Reader, error) {
	keys, err := l.host.Keys().verifiers()
	if err != nil {
		return nil, err
	}
	return hostlog.OpenReader(l.host.path("log"), keys[0], keys[1:]...)
}

// checkpoint returns the last checkpoint of the host's log, after checking it.
func (l ManifestLog) checkpoint(ctx context.Context, r *hostlog.Reader) (statement.Checkpoint, error) {
	signed, err := r.Checkpoint(ctx)
	if err != nil {
		return statement.Checkpoint{}, err
	}
	trusted, err := l.host.Keys().Trusted()
	if err != nil {
		return statement.Checkpoint{}, err
	}
	n, err := note.Open(signed, trusted)
	if err != nil {
		return statement.Checkpoint{}, err
	}
	return statement.ParseCheckpoint(n.Text)
}
