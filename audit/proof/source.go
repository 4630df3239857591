package proof

import (
	"bytes"
	"context"
	"errors"
	"io/fs"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// source provides the proofs about the host's log, from the log or from a bundle's files.
// Its errors are verdicts, or ctx's.
type source interface {
	// checkpoint returns the signed note; nil if there is none.
	checkpoint(ctx context.Context) ([]byte, error)
	// include returns the proof for an entry under a checkpoint. The error is errTail if the
	// checkpoint does not cover the entry and that alone is not a finding.
	include(ctx context.Context, name string, entry []byte, c signedCheckpoint) (inclusion, error)
	// continues returns the proof that c's tree extends that of size old.
	continues(ctx context.Context, old uint64, c signedCheckpoint) ([]merkle.Hash, error)
	// since returns an earlier checkpoint from the evidence; nil if there is none.
	since() ([]byte, error)
	// stamp returns the RFC 3161 response over the checkpoint; nil if there is none.
	stamp() ([]byte, error)
	// earlier returns checkpoints that show when manifests were in the log, by the manifest's first seq.
	earlier(ctx context.Context, manifests []signed, c signedCheckpoint) (map[uint64]earlier, error)
}

var errTail = errors.New("not under the checkpoint")

// fromLog uses the host's log.
type fromLog struct{ evidence *Evidence }

func (s fromLog) checkpoint(ctx context.Context) ([]byte, error) {
	note, err := s.evidence.Log.Checkpoint(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return note, s.failed(ctx, err)
}

// failed makes a verdict of an error of the log.
func (s fromLog) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return verdict.Open(verdict.ErrUnreadable, "", "the host's log: %v", err)
}

func (s fromLog) include(ctx context.Context, _ string, entry []byte, c signedCheckpoint) (inclusion, error) {
	index, err := s.evidence.Log.Index(ctx, entry)
	if errors.Is(err, fs.ErrNotExist) || err == nil && index >= c.Size {
		return inclusion{}, errTail
	}
	var path []merkle.Hash
	if err == nil {
		path, err = s.evidence.Log.Inclusion(ctx, index, c.Size)
	}
	return inclusion{entry: entry, index: index, path: path, checkpoint: c.note}, s.failed(ctx, err)
}

func (s fromLog) continues(ctx context.Context, old uint64, c signedCheckpoint) ([]merkle.Hash, error) {
	path, err := s.evidence.Log.Consistency(ctx, old, c.Size)
	return path, s.failed(ctx, err)
}

func (s fromLog) since() ([]byte, error) { return nil, nil }
func (s fromLog) stamp() ([]byte, error) { return s.evidence.Stamp, nil }

// earlier uses Past as WriteBundle does.
func (s fromLog) earlier(ctx context.Context, manifests []signed, c signedCheckpoint) (map[uint64]earlier, error) {
	if s.evidence.Past == nil {
		return nil, nil
	}
	var logged []placed
	for _, m := range manifests {
		if m.logged {
			logged = append(logged, placed{m.Manifest, m.index})
		}
	}
	all, err := firstCheckpoints(ctx, s.evidence.Past, logged)
	if err == nil {
		err = proveEarlier(ctx, s.evidence.Log, all, c.Size)
	}
	return all, s.failed(ctx, err)
}

// fromFiles uses a bundle's files.
type fromFiles struct{ evidence *Evidence }

// file reads an optional file.
func (s fromFiles) file(name string, limit int64) ([]byte, error) {
	data, err := s.evidence.read(name, limit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, verdict.Open(verdict.ErrUnreadable, name, "%v", err)
	}
	return data, nil
}

func (s fromFiles) checkpoint(context.Context) ([]byte, error) {
	return s.file(checkpointFile, statement.MaxCheckpoint)
}
func (s fromFiles) since() ([]byte, error) { return s.file(sinceFile, statement.MaxCheckpoint) }
func (s fromFiles) stamp() ([]byte, error) { return s.file(stampFile, maxSmall) }

func (s fromFiles) include(_ context.Context, name string, entry []byte, c signedCheckpoint) (p inclusion, err error) {
	name += proofSuffix
	data, err := s.file(name, maxProof)
	switch {
	case err != nil:
		return p, err
	case data == nil:
		return p, verdict.Broken(verdict.ErrNoProof, 0, name, "")
	}
	if p, err = parseInclusion(data); err != nil {
		return p, verdict.Broken(verdict.ErrProofMalformed, 0, name, "%v", err)
	}
	switch {
	case !bytes.Equal(p.checkpoint, c.note):
		return p, verdict.Broken(verdict.ErrOtherCheckpoint, 0, name, "the bundle's checkpoint is another")
	case !bytes.Equal(p.entry, entry):
		return p, verdict.Broken(verdict.ErrOtherEntry, 0, name, "it is about %.200q, %.200q is due", p.entry, entry)
	}
	return p, nil
}

func (s fromFiles) continues(_ context.Context, old uint64, c signedCheckpoint) ([]merkle.Hash, error) {
	data, err := s.file(consistencyFile, maxProof)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, verdict.Broken(verdict.ErrNoConsistency, 0, consistencyFile, "")
	}
	p, err := parseContinuation(data)
	switch {
	case err != nil:
		return nil, verdict.Broken(verdict.ErrProofMalformed, 0, consistencyFile, "%v", err)
	case p.old != old:
		return nil, verdict.Broken(verdict.ErrNoConsistency, 0, consistencyFile, "it is about a tree of %d entries, not %d", p.old, old)
	case !bytes.Equal(p.checkpoint, c.note):
		return nil, verdict.Broken(verdict.ErrOtherCheckpoint, 0, consistencyFile, "the bundle's checkpoint is another")
	}
	return p.path, nil
}

func (s fromFiles) earlier(_ context.Context, manifests []signed, _ signedCheckpoint) (map[uint64]earlier, error) {
	all := map[uint64]earlier{}
	for _, m := range manifests {
		name := wal.FileName(m.First, witnessedSuffix)
		data, err := s.file(name, maxProof)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		e, err := parseEarlier(data)
		if err != nil {
			return nil, verdict.Broken(verdict.ErrProofMalformed, 0, name, "%v", err)
		}
		if e.stamp, err = s.file(wal.FileName(m.First, witnessedStampSuffix), maxSmall); err != nil {
			return nil, err
		}
		all[m.First] = e
	}
	return all, nil
}
