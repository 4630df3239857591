package proof

import (
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// prover compares segments with their manifests and leaves, one at a time, and reuses its buffers. It is not safe for
// concurrent use.
type prover struct {
	evidence *Evidence
	walker   *walker
	data     []byte
	sums     []byte
	leaves   []merkle.Hash
	torn     bool // the file of leaves is malformed
}

func newProver(e *Evidence, run string) *prover { return &prover{evidence: e, walker: newWalker(run)} }

// segment reads the file of a segment; the bytes are valid until the next call.
func (p *prover) segment(file string) ([]byte, error) {
	data, err := p.evidence.readInto(p.data, file, maxSegment)
	p.data = data
	return data, err
}

// prove returns the frames if all of them match the signed root.
func (p *prover) prove(m statement.Manifest, file string, data []byte) ([]proven, error) {
	p.readLeaves(m.First)
	if !p.torn && uint64(len(p.leaves)) == m.Count && int64(len(data)) == m.Bytes && merkle.Root(p.leaves) == m.Root {
		if frames, ok := p.walker.walk(data, p.leaves); ok {
			return frames, nil
		}
	}
	data, masked := unmask(data)
	frames, err := compare(m, file, data, p.leaves)
	if err != nil {
		return nil, err
	}
	if p.torn {
		return nil, verdict.Broken(verdict.ErrLeaves, 0, wal.FileName(m.First, wal.LeavesSuffix), "they are no row of hashes")
	}
	var all []proven
	for _, f := range frames {
		all = append(all, proven{seq: f.Seq, leaf: f.Leaf(), record: f.Bytes, withheld: masked[f.Offset]})
	}
	return all, nil
}

// readLeaves reads the segment's leaf hashes; there are none if the file is missing or malformed.
func (p *prover) readLeaves(first uint64) {
	p.leaves, p.torn = p.leaves[:0], false
	data, err := p.evidence.readInto(p.sums, wal.FileName(first, wal.LeavesSuffix), maxLeaves)
	p.sums = data
	if err != nil || len(data)%len(merkle.Hash{}) != 0 {
		p.torn = err == nil
		return
	}
	for ; len(data) > 0; data = data[len(merkle.Hash{}):] {
		p.leaves = append(p.leaves, merkle.Hash(data))
	}
}
