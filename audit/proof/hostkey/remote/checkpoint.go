package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/internal/regular"
)

// The refusals of checkpoints.
var (
	errOrigin = errors.New("it is not a checkpoint of this host's log")
	errShrunk = errors.New("the log has fewer entries than were signed")
	errForked = errors.New("the log does not extend the one that was signed")
)

func (s *Server) checkpointPath() string { return filepath.Join(s.o.Dir, "checkpoint") }

// load reads the checkpoint that was signed last, or begins with the published one.
func (s *Server) load() error {
	text, err := regular.ReadFile(s.checkpointPath())
	switch {
	case err == nil:
		s.last, err = statement.ParseCheckpoint(string(text))
		return err
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case s.o.Published == nil:
		s.last = statement.Checkpoint{Root: merkle.Root(nil)}
		return nil
	}
	trusted, err := s.o.Trusted()
	if err != nil {
		return err
	}
	n, err := statement.OpenNote(s.o.Published, trusted)
	if err != nil {
		return fmt.Errorf("published checkpoint: %w", err)
	}
	if s.last, err = statement.ParseCheckpoint(n.Text); err != nil {
		return fmt.Errorf("published checkpoint: %w", err)
	}
	return durable.Replace(s.checkpointPath(), []byte(n.Text), 0o600)
}

// Last returns the checkpoint that was signed last; of size 0 if there is none.
func (s *Server) Last() statement.Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// extend checks that a checkpoint extends the one that was signed last, and durably takes its place. If the caller did not know the size of
// that one, it reports that and does nothing. The caller holds mu.
func (s *Server) extend(origin string, next statement.Checkpoint, c signCall) (known bool, err error) {
	switch {
	case next.Origin != origin:
		return false, fmt.Errorf("%w: it is of %.100s, not of %s", errOrigin, next.Origin, origin)
	case next.Size < s.last.Size:
		return false, fmt.Errorf("%w: %d of %d; if the log was replaced, the directory %s must go, too", errShrunk, next.Size, s.last.Size, s.o.Dir)
	case c.From != s.last.Size:
		return false, nil
	case !merkle.VerifyConsistency(s.last.Size, next.Size, c.Proof, s.last.Root, next.Root):
		return false, fmt.Errorf("%w: %d entries do not begin with the %d", errForked, next.Size, s.last.Size)
	case next == s.last:
		return true, nil
	}
	if err := durable.Replace(s.checkpointPath(), []byte(c.Text), 0o600); err != nil {
		return false, err
	}
	s.last = next
	return true, nil
}
