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
)

// Past knows the checkpoints of the host's log that were published. Nothing that it answers is trusted.
type Past interface {
	// First returns the first known checkpoint that covers the entry at index and was cosigned or stamped, and the RFC
	// 3161 response over it, nil if there is none. The error wraps fs.ErrNotExist if there is no such checkpoint.
	First(ctx context.Context, index uint64) (signed, stamp []byte, err error)
}

// shareEvery is how much later than at its first checkpoint a manifest may be shown to have been in the log, so that
// the manifests of a long run share checkpoints.
const shareEvery = 10 * time.Minute

// earlier is a checkpoint from before the one of the evidence, and that the log went on from there.
type earlier struct {
	path       []merkle.Hash
	checkpoint []byte
	stamp      []byte // RFC 3161 response over it; nil if there is none
}

const witnessedHeader = "custody witnessed v1\n"

func (e earlier) marshal() []byte {
	return append(appendHashes([]byte(witnessedHeader), e.path), e.checkpoint...)
}

// parseEarlier takes what marshal makes and nothing else.
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

// placed is a manifest and its place in the host's log.
type placed struct {
	statement.Manifest
	index uint64
}

// firstCheckpoints chooses for manifests, in their order, those whose first checkpoint is to be shown, so that each is
// shown to be in the log at the most shareEvery after it was. The key is the manifest's first seq.
func firstCheckpoints(ctx context.Context, past Past, manifests []placed) (map[uint64]earlier, error) {
	chosen := map[uint64]earlier{}
	var size uint64 // of the last one that was chosen, and its time
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
			continue // it is shown already, or the past is wrong
		}
		chosen[m.First] = earlier{checkpoint: signed, stamp: stamp}
		size, at = c.Size, statedTime(signed, stamp)
	}
	return chosen, nil
}

// proveEarlier adds the proofs that the log went on from the checkpoints to its tree of that size. One that is larger
// is left out: it was published a moment ago.
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

// Dated reports whether a checkpoint, or the stamp over it, states a time: then Past can use it. It does not check
// whether the time is true.
func Dated(signed, stamp []byte) bool { return !statedTime(signed, stamp).IsZero() }

// statedTime is the latest time in a checkpoint's cosignatures, else that of its stamp; neither is verified here.
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
