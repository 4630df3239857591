package proof

import (
	"crypto/x509"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Trust is whom a verifier believes and what it demands. Only Keys is required.
type Trust struct {
	// Keys are those of hosts, from a separate trusted channel, not from the evidence.
	Keys note.Verifiers
	// Fleets are root keys of fleets: what one of them states to be a host's key, in a bundle, is
	// trusted like Keys. Nil: none.
	Fleets note.Verifiers
	// Witnesses are those whose cosignatures count (C2SP tlog-cosignature, cosignature/v1),
	// and Quorum is how many of them the checkpoint needs.
	Witnesses []note.Verifier
	Quorum    int
	// Since is an earlier checkpoint of the host's log that the verifier kept: the log must
	// have gone on from there. Nil: none was kept.
	Since []byte
	// Within is the time after its stated sealing within which each manifest has to be in the log, by the time that the
	// quorum of Witnesses, or an authority, gives. 0: DefaultWithin.
	Within time.Duration
	// Authorities are roots of time stamp authorities (RFC 3161); nil: a stamp is not looked
	// at. With Stamped a stamp must be there.
	Authorities *x509.CertPool
	Stamped     bool
	// Unlogged accepts a bundle without a checkpoint, as Custody wrote before there was a
	// host's log. It then proves no more than the signatures of its manifests do.
	Unlogged bool
}
