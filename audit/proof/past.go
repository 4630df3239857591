package proof

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

// Past has the published checkpoints of the host's log. It is not trusted.
type Past interface {
	// First returns the first checkpoint that covers the entry at index and was cosigned or stamped, and the RFC
	// 3161 response over it, nil if there is none. The error wraps fs.ErrNotExist if there is no such checkpoint.
	First(ctx context.Context, index uint64) (signed, stamp []byte, err error)
}

// shareEvery is the maximum time between the first checkpoint that covers a manifest and the one that shows it to be in
// the log, so that the manifests of a long run share checkpoints.
const shareEvery = 10 * time.Minute

// earlier is a checkpoint older than that of the evidence, with the proof that the log continues it.
type earlier struct {
	path       []merkle.Hash
	checkpoint []byte
	stamp      []byte // RFC 3161 response over it; nil if there is none
}

const witnessedHeader = "custody witnessed v1\n"

func (e earlier) marshal() []byte {
	return append(appendHashes([]byte(witnessedHeader), e.path), e.checkpoint...)
}

// parseEarlier parses exactly what marshal returns.
func parseEarlier(data []byte) (e earlier, err error) {
	head, checkpoint, ok := bytes.Cut(data, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !ok || lines[0]+"\n" != witnessedHeader {
		return e, fmt.Errorf("it does not begin with %q", witnessedHeader)
	}
	if e.path, err = parseHashes(lines[1:]); err != nil {
		return e, err
	}
	e.checkpoint = checkpoint
	if !bytes.Equal(e.marshal(), data) {
		return e, errors.New("it is not in canonical form")
	}
	return e, nil
}

// placed is a manifest and its index in the host's log.
type placed struct {
	statement.Manifest
	index uint64
}

// firstCheckpoints chooses the manifests, of those given in order, whose first checkpoint is included, so that each
// manifest is shown to be in the log at most shareEvery after it was. The key is the manifest's first seq.
func firstCheckpoints(ctx context.Context, past Past, manifests []placed) (map[uint64]earlier, error) {
	chosen := map[uint64]earlier{}
	var size uint64 // of the last one chosen, and its time
	var at time.Time
	for i := len(manifests) - 1; i >= 0; i-- {
		m := manifests[i]
		if size > m.index && !at.After(m.SealedAt.Add(shareEvery)) {
			continue
		}
		signed, stamp, err := past.First(ctx, m.index)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("earlier checkpoints: %w", err)
		}
		c, err := statement.ReadCheckpoint(signed)
		if err != nil {
			return nil, fmt.Errorf("earlier checkpoints: %w", err)
		}
		if c.Size == size || c.Size <= m.index {
			continue // already covered, or the past is wrong
		}
		chosen[m.First] = earlier{checkpoint: signed, stamp: stamp}
		size, at = c.Size, statedTime(signed, stamp)
	}
	return chosen, nil
}

// proveEarlier adds the proofs that the log continues the checkpoints to its tree of that size. It omits a larger
// checkpoint, which was published in the meantime.
func proveEarlier(ctx context.Context, log Log, all map[uint64]earlier, size uint64) error {
	for first, e := range all {
		c, err := statement.ReadCheckpoint(e.checkpoint)
		if err != nil {
			return err
		}
		if c.Size > size {
			delete(all, first)
			continue
		}
		if e.path, err = log.Consistency(ctx, c.Size, size); err != nil {
			return err
		}
		all[first] = e
	}
	return nil
}

// Dated reports whether a checkpoint, or the stamp over it, states a time, so that Past can use it. It does not check
// the time.
func Dated(signed, stamp []byte) bool { return !statedTime(signed, stamp).IsZero() }

// statedTime returns the latest time in a checkpoint's cosignatures, or else that of its stamp, without verifying either.
func statedTime(signed, stamp []byte) (last time.Time) {
	n, err := statement.Unverified(signed)
	if err != nil {
		return last
	}
	for _, s := range n.UnverifiedSigs {
		raw, err := base64.StdEncoding.DecodeString(s.Base64)
		if err != nil || len(raw) != 4+8+64 { // C2SP tlog-cosignature, cosignature/v1
			continue
		}
		if t, err := cosignTime(s); err == nil && t.After(last) {
			last = t
		}
	}
	if !last.IsZero() || stamp == nil {
		return last
	}
	if t, _, err := openStamp(stamp); err == nil {
		last = t.Time
	}
	return last
}

// lastSecond is the last that RFC 3339 can write, in seconds since 1970: the end of the year 9999.
const lastSecond = 253402300799

// cosignTime returns the time that a witness's cosignature states, in UTC. Its unsigned 64 bits hold more than a
// time.Time: any time after lastSecond counts as lastSecond.
func cosignTime(s note.Signature) (time.Time, error) {
	t, err := cosign.CoSigV1Timestamp(s)
	return time.Unix(int64(min(uint64(t.Unix()), lastSecond)), 0).UTC(), err
}

// addPast adds the checkpoints that show when the manifests were in the log.
func (b *bundler) addPast() error {
	if b.Log == nil || b.Past == nil {
		return nil
	}
	all, err := firstCheckpoints(b.ctx, b.Past, b.logged)
	if err == nil {
		err = proveEarlier(b.ctx, b.Log, all, b.checkpoint.Size)
	}
	if err != nil {
		return err
	}
	for first, e := range all {
		b.addBytes(wal.FileName(first, witnessedSuffix), e.marshal())
		if e.stamp != nil {
			b.addBytes(wal.FileName(first, witnessedStampSuffix), e.stamp)
		}
	}
	return nil
}
