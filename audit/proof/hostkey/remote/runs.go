package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
)

const (
	runsDir        = "runs"
	manifestSuffix = ".manifest"
	maxRuns        = 1000 // of which a manifest is kept
	maxDigest      = 100  // bytes of a digest
)

type (
	sealCall struct {
		Run     string
		Facts   statement.Facts
		Segment sealer.Segment
	}
	lastCall   struct{ Run string }
	lastAnswer struct{ Manifest []byte }
)

// The refusals of runs.
var (
	errNotYours = errors.New("the caller does not write this run")
	errFacts    = errors.New("its manifests state another tenant, or what only a sandbox has")
	errBegun    = errors.New("it did not begin now; if it is a log of an earlier version, a custody command that is run as root closes it")
)

// seal signs a segment of a run that the caller writes.
func (s *Server) seal(_ context.Context, c sealCall) (any, []*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	signer, err := s.signer(c)
	if err != nil {
		return nil, nil, fmt.Errorf("run %.140q is not signed: %w", c.Run, err)
	}
	manifest, err := signer.Sign(c.Segment)
	if err != nil {
		return nil, nil, err
	}
	if err := durable.Replace(s.manifestPath(c.Run), manifest, 0o600); err != nil {
		return nil, nil, err
	}
	if c.Segment.Closing != wal.Open {
		delete(s.runs, c.Run)
	}
	return manifest, nil, nil
}

// lastManifest returns the manifest of a run that was signed last, if there is one.
func (s *Server) lastManifest(_ context.Context, c lastCall) (any, []*os.File, error) {
	if _, ok := s.began(c.Run); !ok {
		return nil, nil, errNotYours
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	manifest, err := regular.ReadFile(s.manifestPath(c.Run))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return lastAnswer{manifest}, nil, err
}

// manifestPath returns the path of the manifest of a run whose name began has checked.
func (s *Server) manifestPath(run string) string {
	return filepath.Join(s.o.Dir, runsDir, run+manifestSuffix)
}

// began returns the time in the name of a run that the caller writes.
func (s *Server) began(run string) (time.Time, bool) {
	name, ok := strings.CutPrefix(run, s.o.Prefix)
	id, err := ulid.ParseStrict(strings.ToUpper(name))
	if !ok || s.o.Prefix == "" || err != nil || strings.ToLower(id.String()) != name {
		return time.Time{}, false
	}
	return ulid.Time(id.Time()), true
}

// signer returns the signer of a run, which begins or continues after the manifest that was signed last. The caller holds mu.
func (s *Server) signer(c sealCall) (*sealer.Signer, error) {
	began, ok := s.began(c.Run)
	if !ok {
		return nil, errNotYours
	}
	if signer := s.runs[c.Run]; signer != nil {
		return signer, nil
	}
	key, err := s.o.Key()
	if err != nil {
		return nil, err
	}
	last, err := regular.ReadFile(s.manifestPath(c.Run))
	var signer *sealer.Signer
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := s.begin(c.Facts, began); err != nil {
			return nil, err
		}
		signer = sealer.NewSigner(key, c.Run, c.Facts)
	case err != nil:
		return nil, err
	default:
		trusted, err := s.o.Trusted()
		if err != nil {
			return nil, err
		}
		if signer, err = sealer.Resume(key, c.Run, last, trusted); err != nil {
			return nil, err
		}
	}
	s.runs[c.Run] = signer
	return signer, nil
}

// begin decides whether a run can begin. The time in its name is the current one, so that no run begins a second time after its manifest was
// removed.
func (s *Server) begin(facts statement.Facts, began time.Time) error {
	if facts != (statement.Facts{Tenant: s.o.Tenant, RulesetDigest: facts.RulesetDigest}) || len(facts.RulesetDigest) > maxDigest {
		return errFacts
	}
	if err := s.current(began); err != nil {
		return errBegun
	}
	kept, err := s.prune()
	if err == nil && max(kept, len(s.runs)) >= maxRuns {
		err = fmt.Errorf("%s has the manifests of %d runs that were not closed, or not long ago", filepath.Join(s.o.Dir, runsDir), maxRuns)
	}
	return err
}

// prune removes the manifests of closed runs that cannot begin again, and returns how many are left.
func (s *Server) prune() (kept int, err error) {
	files, err := os.ReadDir(filepath.Join(s.o.Dir, runsDir))
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		run := strings.TrimSuffix(f.Name(), manifestSuffix)
		began, ok := s.began(run)
		if !ok || s.current(began) == nil || began.After(s.now()) {
			kept++
			continue
		}
		signed, err := regular.ReadFile(s.manifestPath(run))
		if err != nil {
			return 0, err
		}
		m, err := statement.ReadManifest(signed)
		if err != nil || m.Closing == wal.Open {
			kept++
			continue
		}
		if err := os.Remove(s.manifestPath(run)); err != nil {
			return 0, err
		}
	}
	return kept, nil
}
