package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/privsep"
)

// The calls of a Client.
const (
	callPublic = "key-public"
	callSign   = "key-sign"
	callSeal   = "key-seal"
	callLast   = "key-last"
)

const (
	maxText  = 48 << 10 // bytes of a statement, which must fit into a message
	maxProof = 128      // hashes of a proof of consistency
	// maxAge and maxAhead limit how the time of a statement may differ from the Server's: reports take time.
	maxAge   = time.Hour
	maxAhead = time.Minute
)

type (
	none         struct{}
	publicAnswer struct{ Public string } // verifier of the key, in note format
	signCall     struct {
		Key      uint32 // hash of the key that is to sign
		Text     string
		From     uint64        // of a checkpoint: size of the one that was signed last, as the caller knows it
		Proof    []merkle.Hash // of a checkpoint: that it extends that one
		Manifest []byte        // on which the statement rests
	}
	signAnswer struct {
		Signature []byte
		Behind    bool   // there is no signature, because From was not Size
		Size      uint64 // of the checkpoint that was signed last
	}
)

// Options are the key and the limits of a Server.
type Options struct {
	// Dir is the directory of the state, which is created. Only its owner may write to it.
	Dir string
	// Key returns the current key. It is called for each signature, because the key may be rotated.
	Key func() (hostkey.Key, error)
	// Trusted returns the verifiers of the key and its predecessors.
	Trusted func() (note.Verifiers, error)
	// Published is the checkpoint with which a Server without state begins; nil: the log is empty.
	Published []byte
	// DeleteAfter is the time after which runs are deleted; 0: they are not.
	DeleteAfter time.Duration
	// Prefix begins the names of the runs that the caller itself writes; empty: it writes none. Tenant is theirs.
	Prefix, Tenant string
}

// Server signs for a caller without the key. It is safe for concurrent use.
//
//	NewServer --> open --Close--> closed
type Server struct {
	o    Options
	now  func() time.Time
	lock *os.File

	mu     sync.Mutex // guards the fields below
	closed bool
	last   statement.Checkpoint      // that was signed; of size 0 if there is none
	runs   map[string]*sealer.Signer // of the caller; those that are closed may be missing
}

var _ privsep.Server = (*Server)(nil)

// NewServer opens the state. The caller closes the Server.
func NewServer(o Options) (*Server, error) {
	s := &Server{o: o, now: time.Now, runs: map[string]*sealer.Signer{}}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("what the host's key has signed: %w", err)
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("what the host's key has signed: %w", err), s.lock.Close())
	}
	return s, nil
}

// open makes the directory and locks it.
func (s *Server) open() error {
	if err := os.MkdirAll(filepath.Join(s.o.Dir, runsDir), 0o700); err != nil {
		return err
	}
	var info unix.Stat_t
	if err := unix.Lstat(s.o.Dir, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR || int(info.Uid) != os.Geteuid() || info.Mode&0o022 != 0 {
		return fmt.Errorf("others can change %s: make it a directory of the key's owner with mode 0700", s.o.Dir)
	}
	lock, err := os.OpenFile(filepath.Join(s.o.Dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("another process signs with the key, see %s: %w", lock.Name(), err), lock.Close())
	}
	s.lock = lock
	return nil
}

// Handlers implements privsep.Server.
func (s *Server) Handlers() map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callPublic: privsep.Handle(s.public),
		callSign:   privsep.Handle(s.sign),
		callSeal:   privsep.Handle(s.seal),
		callLast:   privsep.Handle(s.lastManifest),
	}
}

// Close ends the signing, after the signatures that are being made.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.lock.Close()
}

// The refusals of a Server.
var (
	errClosed   = errors.New("the process with the host's key is ending: try again")
	errRotated  = errors.New("the host's key was rotated meanwhile: try again")
	errTooLong  = fmt.Errorf("the statement or its proof is too long: a statement may have %d bytes", maxText)
	errManifest = errors.New("manifests are signed only for the process that writes the run")
	errAdmin    = errors.New("only an administrator makes such a statement: run the command as root")
	errTime     = errors.New("it is not dated with the current time")
)

func (s *Server) public(context.Context, none) (any, []*os.File, error) {
	key, err := s.o.Key()
	return publicAnswer{key.Public}, nil, err
}

// sign signs a statement, if its kind and its contents permit that.
func (s *Server) sign(_ context.Context, c signCall) (any, []*os.File, error) {
	if len(c.Text) > maxText || len(c.Proof) > maxProof {
		return nil, nil, errTooLong
	}
	stated, err := statement.Parse(c.Text)
	if err != nil {
		return nil, nil, err
	}
	key, err := s.o.Key()
	if err != nil {
		return nil, nil, err
	}
	if key.KeyHash() != c.Key {
		return nil, nil, errRotated
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	switch v := stated.(type) {
	case statement.Checkpoint:
		var known bool
		if known, err = s.extend(key.Name(), v, c); err == nil && !known {
			return signAnswer{Behind: true, Size: s.last.Size}, nil, nil
		}
	case statement.Deletion:
		err = s.deletion(v, c.Manifest)
	case statement.Attachments:
		err = s.current(v.Time)
	case statement.Selected:
		err = s.current(v.Time)
	case statement.Trailer:
	case statement.Manifest:
		err = errManifest
	default: // erasures, rotations, and statements about other hosts
		err = errAdmin
	}
	if err != nil {
		return nil, nil, fmt.Errorf("not signed: %w", err)
	}
	signature, err := key.Sign([]byte(c.Text))
	return signAnswer{Signature: signature, Size: s.last.Size}, nil, err
}

// current checks the time of a statement.
func (s *Server) current(t time.Time) error {
	if now := s.now(); t.Before(now.Add(-maxAge)) || t.After(now.Add(maxAhead)) {
		return fmt.Errorf("%w: it has %s", errTime, t.Format(time.RFC3339))
	}
	return nil
}

// The refusals of deletions.
var (
	errNoRule   = errors.New("host.yaml has no delete_after with that time")
	errNoClose  = errors.New("the manifest that was sent along does not close the run")
	errNotSame  = errors.New("it does not agree with the run's closing manifest")
	errTooYoung = errors.New("delete_after has not passed yet")
)

// deletion checks the statement that a run was deleted against its closing manifest, whose time is that of the key's owner.
func (s *Server) deletion(d statement.Deletion, closing []byte) error {
	trusted, err := s.o.Trusted()
	if err != nil {
		return err
	}
	m, err := statement.OpenManifest(closing, trusted)
	if err != nil {
		return fmt.Errorf("the run's closing manifest: %w", err)
	}
	switch {
	case s.o.DeleteAfter == 0 || d.Rule != statement.DeleteRule(s.o.DeleteAfter):
		return errNoRule
	case m.Closing == wal.Open:
		return errNoClose
	case d.Run != m.Run, d.Tenant != m.Tenant, d.Segments != m.Segment+1, d.Manifest != statement.Digest(closing), !d.Ended.Equal(m.SealedAt),
		d.Records > m.Last:
		return errNotSame
	case s.now().Sub(m.SealedAt) <= s.o.DeleteAfter:
		return errTooYoung
	}
	return s.current(d.Time)
}
