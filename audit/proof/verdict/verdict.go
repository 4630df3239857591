// Package verdict defines the outcomes of verification: the findings, with names and numbers that
// stay the same from version to version, and their location.
package verdict

import (
	"errors"
	"fmt"
)

// The outcomes of Verify other than "holds". Every error of Verify is one of the
// two; use errors.Is.
var (
	ErrDoesNotHold    = errors.New("the record does not hold")
	ErrCannotBeJudged = errors.New("the record cannot be judged")
)

// Finding is one kind of finding of Verify, with a name and a number that stay the same
// from version to version.
type Finding struct {
	name   string
	status int
	text   string
}

// Name is in lower case with hyphens, such as record-altered.
func (f *Finding) Name() string { return f.name }

// Status is between 10 and 99, so that a process can exit with it.
func (f *Finding) Status() int { return f.status }

// Error implements error.
func (f *Finding) Error() string { return f.text }

// The findings of Verify. Each is returned in a Verdict, which has the location. docs/verify.md has them in a table.
var (
	// Findings about records: the evidence does not hold.
	ErrAltered     = &Finding{"record-altered", 10, "record altered"}
	ErrMissing     = &Finding{"record-missing", 11, "record missing"}
	ErrDuplicated  = &Finding{"record-duplicated", 12, "record duplicated"}
	ErrReordered   = &Finding{"records-reordered", 13, "records reordered"}
	ErrInserted    = &Finding{"record-inserted", 14, "record inserted that was never sealed"}
	ErrAppended    = &Finding{"record-appended", 15, "record appended after the seal"}
	ErrUndecodable = &Finding{"record-undecodable", 16, "record cannot be decoded"}
	ErrMalformed   = &Finding{"record-malformed", 17, "record does not have the form of its kind"}
	ErrHole        = &Finding{"hole-undeclared", 18, "seqs missing that no gap declares"}
	ErrCopied      = &Finding{"copy-contradicted", 19, "the files of a copy do not give its root"}
	// Findings about the other files: the evidence does not hold either.
	ErrTailCut            = &Finding{"tail-cut", 20, "tail cut: there is no closing manifest"}
	ErrSegmentMissing     = &Finding{"segment-missing", 21, "segment missing"}
	ErrManifestMissing    = &Finding{"manifest-missing", 22, "manifest missing"}
	ErrForged             = &Finding{"manifest-forged", 23, "manifest forged"}
	ErrOutOfChain         = &Finding{"manifest-out-of-chain", 24, "manifest out of chain"}
	ErrContradiction      = &Finding{"manifest-contradicted", 25, "manifest contradicts its records"}
	ErrLeaves             = &Finding{"leaves-altered", 26, "leaf hashes altered or missing"}
	ErrRunMismatch        = &Finding{"runs-mixed", 27, "evidence is mixed from different runs"}
	ErrStray              = &Finding{"file-stray", 28, "a file belongs to nothing that is signed"}
	ErrBundle             = &Finding{"bundle-malformed", 29, "not a bundle that custody wrote"}
	ErrBundleSize         = &Finding{"bundle-oversized", 30, "the bundle holds more than a bundle may"}
	ErrAttachmentUnstated = &Finding{"attachment-unstated", 31, "a file is attached that no statement names"}
	ErrAttachmentForged   = &Finding{"attachments-forged", 32, "statement of the attached files forged"}
	ErrAttachmentAltered  = &Finding{"attachment-altered", 33, "an attached file is not the one that was stated"}
	ErrAttachmentMismatch = &Finding{"attachments-mismatched", 34, "the attached files are about another run"}
	ErrWithheldUndeclared = &Finding{"withheld-undeclared", 35, "a record is withheld without a statement"}
	ErrSelectionForged    = &Finding{"selection-forged", 36, "statement of the selection forged"}
	ErrSelectionMismatch  = &Finding{"selection-mismatched", 37, "statement of the selection is about other records"}
	ErrTrailer            = &Finding{"trailer-mismatched", 38, "the bundle is not what its trailer signs"}
	// Findings about the host's log.
	ErrNoCheckpoint    = &Finding{"checkpoint-missing", 40, "the host log's checkpoint is missing"}
	ErrCheckpoint      = &Finding{"checkpoint-forged", 41, "checkpoint forged"}
	ErrOtherLog        = &Finding{"checkpoint-of-another-log", 42, "the checkpoint is another log's"}
	ErrRolledBack      = &Finding{"log-rolled-back", 43, "the checkpoint is older than the one that was kept"}
	ErrForked          = &Finding{"log-forked", 44, "the log does not continue from the checkpoint that was kept"}
	ErrNoConsistency   = &Finding{"consistency-missing", 45, "there is no proof that the log continues from the checkpoint that was kept"}
	ErrNoProof         = &Finding{"proof-missing", 46, "proof of inclusion missing"}
	ErrProofMalformed  = &Finding{"proof-malformed", 47, "proof cannot be read"}
	ErrOtherEntry      = &Finding{"proof-of-another-entry", 48, "the proof is about another entry of the log"}
	ErrOtherCheckpoint = &Finding{"proof-of-another-checkpoint", 49, "the proof is under another checkpoint"}
	ErrNotIncluded     = &Finding{"inclusion-broken", 50, "the entry is not in the tree that the checkpoint signs"}
	ErrUnlogged        = &Finding{"manifest-unlogged", 51, "a manifest is not in the host's log, but a later one is"}
	ErrRunMissing      = &Finding{"run-missing", 52, "the host's log has a run that is not here"}
	ErrQuorum          = &Finding{"quorum-missing", 53, "too few witnesses have cosigned the checkpoint"}
	ErrUnknownWitness  = &Finding{"witness-unknown", 54, "too few witnesses that are trusted here have cosigned the checkpoint, others have"}
	ErrCosignature     = &Finding{"cosignature-forged", 55, "a witness's cosignature is not over this checkpoint"}
	ErrNoStamp         = &Finding{"stamp-missing", 56, "the checkpoint has no time stamp"}
	ErrStamp           = &Finding{"stamp-forged", 57, "time stamp forged"}
	ErrStampedOther    = &Finding{"stamp-of-another-checkpoint", 58, "the time stamp is over another checkpoint"}
	// Findings about times and the lineage.
	ErrLate              = &Finding{"witnessed-late", 66, "witnesses saw a record long after its stated time of writing or sealing"}
	ErrParent            = &Finding{"parent-mismatched", 67, "the run continues another record than the one of its parent here"}
	ErrCycle             = &Finding{"lineage-cyclic", 68, "a run is its own ancestor"}
	ErrBackdated         = &Finding{"entry-backdated", 65, "an entry of the host's log is younger than it states"}
	ErrErasureUndeclared = &Finding{"erasure-undeclared", 60, "a record is erased without a statement"}
	ErrErasureForged     = &Finding{"erasure-forged", 61, "statement of an erasure forged"}
	ErrErasureMismatch   = &Finding{"erasure-mismatched", 62, "statement of an erasure is about another record"}
	ErrErasureForbidden  = &Finding{"erasure-forbidden", 63, "a record was erased that has to stay"}
	ErrErasureUnlogged   = &Finding{"erasure-unlogged", 64, "statement of an erasure is not in the host's log"}
	ErrRotationForged    = &Finding{"rotation-forged", 70, "statement of a key's rotation forged"}
	ErrRotationUnlogged  = &Finding{"rotation-unlogged", 71, "statement of a key's rotation is not in the host's log"}
	ErrRotationForked    = &Finding{"rotation-forked", 72, "a key has two successors"}
	ErrRetired           = &Finding{"key-retired", 73, "signed by a key that was retired before the run began"}
	ErrHostKey           = &Finding{"host-key-mismatched", 74, "the bundle names a host key that has not signed it"}
	ErrHostForged        = &Finding{"host-forged", 75, "statement about a host's key forged"}
	ErrEarly             = &Finding{"key-early", 76, "signed by a key that the host did not have yet"}
	// Findings that leave the question open.
	ErrUnknownKey     = &Finding{"key-unknown", 80, "signed by a key that is not trusted here"}
	ErrLive           = &Finding{"run-live", 81, "the run is live: its record is not closed yet"}
	ErrNoEvidence     = &Finding{"evidence-missing", 82, "there is no record here"}
	ErrUnreadable     = &Finding{"evidence-unreadable", 83, "the evidence cannot be read"}
	ErrPending        = &Finding{"checkpoint-pending", 84, "the record's end is not under a checkpoint of the host's log yet"}
	ErrKind           = &Finding{"kind-unknown", 85, "a record is of a kind that this version does not know"}
	ErrField          = &Finding{"field-unknown", 87, "a record has a field that this version does not know"}
	ErrStampUntrusted = &Finding{"stamp-untrusted", 86, "the checkpoint was stamped by an authority that is not trusted here"}
)

// Findings returns all of them, ordered by status. Those from 80 on leave the question open.
func Findings() []*Finding {
	return []*Finding{
		ErrAltered, ErrMissing, ErrDuplicated, ErrReordered, ErrInserted, ErrAppended, ErrUndecodable, ErrMalformed, ErrHole, ErrCopied,
		ErrTailCut, ErrSegmentMissing, ErrManifestMissing, ErrForged, ErrOutOfChain, ErrContradiction, ErrLeaves, ErrRunMismatch,
		ErrStray, ErrBundle, ErrBundleSize,
		ErrAttachmentUnstated, ErrAttachmentForged, ErrAttachmentAltered, ErrAttachmentMismatch,
		ErrWithheldUndeclared, ErrSelectionForged, ErrSelectionMismatch, ErrTrailer,
		ErrNoCheckpoint, ErrCheckpoint, ErrOtherLog, ErrRolledBack, ErrForked, ErrNoConsistency, ErrNoProof, ErrProofMalformed,
		ErrOtherEntry, ErrOtherCheckpoint, ErrNotIncluded, ErrUnlogged, ErrRunMissing, ErrQuorum, ErrUnknownWitness, ErrCosignature,
		ErrNoStamp, ErrStamp, ErrStampedOther,
		ErrErasureUndeclared, ErrErasureForged, ErrErasureMismatch, ErrErasureForbidden, ErrErasureUnlogged, ErrBackdated, ErrLate,
		ErrParent, ErrCycle,
		ErrRotationForged, ErrRotationUnlogged, ErrRotationForked, ErrRetired, ErrHostKey, ErrHostForged, ErrEarly,
		ErrUnknownKey, ErrLive, ErrNoEvidence, ErrUnreadable, ErrPending, ErrKind, ErrStampUntrusted, ErrField,
	}
}

// Verdict is the reason why evidence does not hold or cannot be judged. errors.Is finds
// both the outcome and the finding in it.
type Verdict struct {
	Outcome error // ErrDoesNotHold or ErrCannotBeJudged
	Finding *Finding
	Seq     uint64 // first record concerned, 0 if there is no particular one
	File    string // manifest, leaves or segment concerned
	Detail  string
}

// Name returns that of the finding.
func (v *Verdict) Name() string { return v.Finding.name }

// Status returns that of the finding.
func (v *Verdict) Status() int { return v.Finding.status }

// Error implements error.
func (v *Verdict) Error() string {
	s := v.Finding.Error()
	if v.Seq > 0 {
		s += fmt.Sprintf(": seq %d", v.Seq)
	}
	if v.File != "" {
		s += " in " + v.File
	}
	if v.Detail != "" {
		s += ": " + v.Detail
	}
	return s
}

// Unwrap returns outcome and finding, for errors.Is.
func (v *Verdict) Unwrap() []error { return []error{v.Outcome, v.Finding} }

func Broken(finding *Finding, seq uint64, file, detail string, args ...any) *Verdict {
	return &Verdict{ErrDoesNotHold, finding, seq, file, fmt.Sprintf(detail, args...)}
}

func Open(finding *Finding, file, detail string, args ...any) *Verdict {
	return &Verdict{ErrCannotBeJudged, finding, 0, file, fmt.Sprintf(detail, args...)}
}
