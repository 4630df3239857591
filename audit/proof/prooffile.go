package proof

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

// The files of a bundle that come from the host's log. N has 20 digits.
const (
	checkpointFile  = "checkpoint"     // the signed note that must cover all entries
	stampFile       = "checkpoint.tsr" // RFC 3161 response over the bytes of that file
	sinceFile       = "since"          // an earlier checkpoint
	consistencyFile = "consistency"    // proof that the log continues it

	proofSuffix         = ".tlog-proof"                          // N: first seq of the segment whose manifest is included
	erasureProofSuffix  = statement.ErasureSuffix + proofSuffix  // N: seq of the record
	rotationProofSuffix = statement.RotationSuffix + proofSuffix // N: number of the rotation

	witnessedSuffix      = ".witnessed"             // N: first seq of a segment whose manifest was in the log by then
	witnessedStampSuffix = witnessedSuffix + ".tsr" // RFC 3161 response over the checkpoint in there
)

const (
	proofHeader = "c2sp.org/tlog-proof@v1\n"
	maxPath     = 64 // hashes of an audit path
	maxProof    = statement.MaxCheckpoint + 16<<10
)

// inclusion is one proof in the format of C2SP tlog-proof. The extra data is the entry, so that a reader can
// check the proof without other data.
type inclusion struct {
	entry      []byte
	index      uint64
	path       []merkle.Hash
	checkpoint []byte
}

func (p inclusion) marshal() []byte {
	b := fmt.Appendf(nil, "%sextra %s\nindex %d\n", proofHeader, base64.StdEncoding.EncodeToString(p.entry), p.index)
	return append(appendHashes(b, p.path), p.checkpoint...)
}

// parseInclusion parses exactly what marshal returns.
func parseInclusion(data []byte) (p inclusion, err error) {
	head, checkpoint, ok := bytes.Cut(data, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !ok || len(lines) < 3 || lines[0]+"\n" != proofHeader {
		return p, errors.New("it is no tlog-proof")
	}
	extra, ok := strings.CutPrefix(lines[1], "extra ")
	if p.entry, err = base64.StdEncoding.DecodeString(extra); !ok || err != nil {
		return p, errors.New("it does not have the entry as extra data")
	}
	index, ok := strings.CutPrefix(lines[2], "index ")
	if p.index, err = strconv.ParseUint(index, 10, 64); !ok || err != nil {
		return p, errors.New("it has no index")
	}
	if p.path, err = parseHashes(lines[3:]); err != nil {
		return p, err
	}
	p.checkpoint = checkpoint
	if !bytes.Equal(p.marshal(), data) {
		return p, errors.New("it is not in canonical form")
	}
	return p, nil
}

// continuation is a proof of consistency in the form of a request to a witness (C2SP
// tlog-witness, add-checkpoint).
type continuation struct {
	old        uint64 // size of the earlier checkpoint's tree
	path       []merkle.Hash
	checkpoint []byte
}

func (c continuation) marshal() []byte {
	return append(appendHashes(fmt.Appendf(nil, "old %d\n", c.old), c.path), c.checkpoint...)
}

func parseContinuation(data []byte) (c continuation, err error) {
	head, checkpoint, ok := bytes.Cut(data, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	old, is := strings.CutPrefix(lines[0], "old ")
	if c.old, err = strconv.ParseUint(old, 10, 64); !ok || !is || err != nil {
		return c, errors.New("it does not begin with the size of the earlier tree")
	}
	if c.path, err = parseHashes(lines[1:]); err != nil {
		return c, err
	}
	c.checkpoint = checkpoint
	if !bytes.Equal(c.marshal(), data) {
		return c, errors.New("it is not in canonical form")
	}
	return c, nil
}

// appendHashes adds each hash as a line, and an empty line.
func appendHashes(b []byte, path []merkle.Hash) []byte {
	for _, h := range path {
		b = append(base64.StdEncoding.AppendEncode(b, h[:]), '\n')
	}
	return append(b, '\n')
}

func parseHashes(lines []string) (path []merkle.Hash, err error) {
	if len(lines) > maxPath {
		return nil, fmt.Errorf("it has %d hashes, at most %d", len(lines), maxPath)
	}
	for _, line := range lines {
		h, err := merkle.ParseBase64(line)
		if err != nil {
			return nil, err
		}
		path = append(path, h)
	}
	return path, nil
}

// numbered returns the number in a file name of that suffix.
func numbered(name, suffix string) bool {
	_, ok := wal.ParseName(name, suffix)
	return ok
}
