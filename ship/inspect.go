package ship

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/store"
)

// inspect decodes a message and checks it: that it belongs to its
// subject, and that its records are those that its manifest signs.
func (g *Ingester) inspect(subject string, message []byte) (store.Segment, error) {
	whose, err := names(segmentRoot, subject, 3)
	if err != nil {
		return store.Segment{}, err
	}
	seg, err := Decode(message)
	if err != nil {
		return seg, err
	}
	if seg.Tenant != whose[0] || seg.Host != whose[1] || seg.Run != whose[2] {
		return seg, fmt.Errorf("%w: its subject has tenant %q, host %q, run %.40q, and it has tenant %q, host %q, run %.40q",
			store.ErrMalformed, whose[0], whose[1], whose[2], seg.Tenant, seg.Host, seg.Run)
	}
	if err := checkManifest(seg, g.options.Keys); err != nil {
		return seg, fmt.Errorf("%w: %w", store.ErrMalformed, err)
	}
	return seg, nil
}

// checkManifest checks that seg's manifest describes seg, and, if keys is set, is signed by the
// key in it with the host's name.
func checkManifest(seg store.Segment, keys note.Verifiers) error {
	m, err := openManifest(seg, keys)
	if err != nil {
		return fmt.Errorf("its manifest: %w", err)
	}
	if m.Run != seg.Run || m.Segment != seg.Index || m.Count != uint64(len(seg.Frames)) || [32]byte(m.Root) != seg.Root {
		return errors.New("its manifest is of another segment")
	}
	if m.Count > 0 && (m.First != seg.First || m.Last != seg.Last) {
		return fmt.Errorf("its manifest signs seq %d to %d", m.First, m.Last)
	}
	var tree merkle.Tree
	for _, f := range seg.Frames {
		tree.Append(f.Leaf())
	}
	if tree.Root() != m.Root {
		return errors.New("its records are not those that its manifest signs")
	}
	return nil
}

func openManifest(seg store.Segment, keys note.Verifiers) (statement.Manifest, error) {
	if keys == nil {
		_, err := note.Open(seg.Manifest, note.VerifierList())
		var open *note.UnverifiedNoteError
		if !errors.As(err, &open) {
			return statement.Manifest{}, err
		}
		return statement.ParseManifest(open.Note.Text)
	}
	n, err := note.Open(seg.Manifest, keys)
	if err != nil {
		return statement.Manifest{}, err
	}
	if !signedBy(n, seg.Host) {
		return statement.Manifest{}, fmt.Errorf("host %q did not sign it", seg.Host)
	}
	return statement.ParseManifest(n.Text)
}

func signedBy(n *note.Note, host string) bool {
	for _, s := range n.Sigs {
		if s.Name == host {
			return true
		}
	}
	return false
}
