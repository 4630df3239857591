package proof

import (
	"crypto/x509"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Trust has the keys that a verifier trusts and its requirements. Only Keys is required.
type Trust struct {
	// Keys are those of hosts, from a separate trusted channel, not from the evidence.
	Keys note.Verifiers
	// Fleets are root keys of fleets: keys that one of them states to be a host's, in a bundle, are
	// trusted like Keys. Nil: none.
	Fleets note.Verifiers
	// Witnesses are those whose cosignatures count (C2SP tlog-cosignature, cosignature/v1),
	// and Quorum is how many of them the checkpoint needs.
	Witnesses []note.Verifier
	Quorum    int
	// Since is an earlier checkpoint of the host's log that the verifier kept: the log must
	// continue it. Nil: none was kept.
	Since []byte
	// Within is the time after its stated sealing within which each manifest must be logged, by the time of the
	// quorum of Witnesses, or of an authority. 0: DefaultWithin.
	Within time.Duration
	// Authorities are roots of time-stamping authorities (RFC 3161); nil: stamps are
	// ignored. With Stamped there must be a stamp.
	Authorities *x509.CertPool
	Stamped     bool
	// Unlogged accepts a bundle without a checkpoint, which Custody wrote before it had a
	// host log. It then proves no more than the signatures of its manifests do.
	Unlogged bool
}
