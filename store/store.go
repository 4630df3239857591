// Package store defines what the transport, the stores and the readers of a
// record share: a segment to be ingested, a row, and the
// summary of a run. The packages below it are implementations.
//
// A store is an index over the record for queries by people and programs. The log of the run
// is authoritative: all results of a store can be compared with the log, and a store
// can be rebuilt from it.
package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Errors that every store returns, wrapped, for the same conditions.
var (
	// ErrUnsigned: the store has rows of a run, and no manifest. Anyone who can write to the store may have forged
	// them.
	ErrUnsigned = errors.New("no signature covers this run: the store has its rows, and no manifest that a host signed")
	// ErrNotFound: no such run.
	ErrNotFound = errors.New("no such run")
	// ErrNoRecord: the run has no such record.
	ErrNoRecord = errors.New("no such record")
	// ErrAmbiguous: a prefix names several runs.
	ErrAmbiguous = errors.New("several runs have this prefix")
	// ErrConflict: the store already has other bytes for this seq or manifest. They are kept, and
	// the segment is refused as a whole. Retrying is useless.
	ErrConflict = errors.New("the store has different bytes at the same place")
	// ErrMalformed: a segment contradicts itself. Retrying is useless.
	ErrMalformed = errors.New("malformed segment")
)

// DeletedError: retention deleted the run. It wraps ErrNotFound and has what the host has signed about the deletion.
type DeletedError struct {
	Run, Rule string
	Time      time.Time
}

// Error implements error.
func (e *DeletedError) Error() string {
	return fmt.Sprintf("run %s was deleted by retention on %s (%s)", e.Run, e.Time.UTC().Format("2006-01-02 15:04:05 UTC"), e.Rule)
}

// Unwrap returns ErrNotFound.
func (e *DeletedError) Unwrap() error { return ErrNotFound }

// Hint names what is left of the run.
func (e *DeletedError) Hint() string {
	return "`custody runs --deleted` lists the signed statements; the record itself was deleted from this host"
}

// Limits of a segment that a transport or a store accepts. The log limits its
// segments to 4 MiB of records, far below them.
const (
	MaxFrames   = 1 << 20
	MaxBody     = 8 << 20
	MaxManifest = 1 << 20
	MaxRunID    = 128
	MaxName     = 64        // of a tenant or a host
	MaxSeq      = 1<<63 - 1 // of a record and of a manifest: databases use signed integers
)

// Frame is one record as in the log. Body is the exact JSON that was hashed.
type Frame struct {
	Seq  uint64
	Salt [16]byte
	Body []byte
	// Erased is the leaf of a record that was erased; Salt and Body are then empty.
	Erased *[32]byte
}

// Leaf returns the record's leaf in its segment's tree: SHA-256(0x00 || salt || body),
// or the stored leaf of an erased record.
func (f Frame) Leaf() [32]byte {
	if f.Erased != nil {
		return *f.Erased
	}
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(f.Salt[:])
	h.Write(f.Body)
	return [32]byte(h.Sum(nil))
}

// Segment is a sealed segment of a run: its signed manifest and its frames,
// ordered by Seq. A run's closing manifest is a segment without frames.
type Segment struct {
	Tenant   string // the tenant, empty if there are no tenants
	Host     string // name of the host's key, which names its log
	Run      string
	Index    uint64 // of the manifest in the run's chain
	First    uint64 // seq of the first and last frame; meaningless without frames
	Last     uint64
	Root     [32]byte // Merkle root that the manifest signs
	Manifest []byte   // exact bytes; may be empty if the log was truncated before sealing and is read again
	Frames   []Frame
}

// Check returns an error that wraps ErrMalformed if s breaks a limit or its own order.
func (s Segment) Check() error {
	switch {
	case !ValidRun(s.Run):
		return malformed("%.80q is not the name of a run", s.Run)
	case !validName(s.Tenant) || !validName(s.Host):
		return malformed("tenant %.80q or host %.80q is not a name", s.Tenant, s.Host)
	case len(s.Manifest) > MaxManifest:
		return malformed("the manifest has %d bytes, at most %d are allowed", len(s.Manifest), MaxManifest)
	case len(s.Frames) > MaxFrames:
		return malformed("%d frames, at most %d are allowed", len(s.Frames), MaxFrames)
	case s.Index > MaxSeq || s.First > MaxSeq || s.Last > MaxSeq:
		return malformed("manifest %d, seq %d to %d: a number is out of range", s.Index, s.First, s.Last)
	case len(s.Frames) == 0:
		return nil
	case s.Frames[0].Seq != s.First || s.Frames[len(s.Frames)-1].Seq != s.Last:
		return malformed("frames are not seq %d to %d", s.First, s.Last)
	}
	for i, f := range s.Frames {
		if i > 0 && f.Seq <= s.Frames[i-1].Seq {
			return malformed("seq %d follows seq %d", f.Seq, s.Frames[i-1].Seq)
		}
		if f.Erased != nil && (len(f.Body) > 0 || f.Salt != [16]byte{}) {
			return malformed("record %d is erased but has contents", f.Seq)
		}
		if f.Erased == nil && len(f.Body) == 0 || len(f.Body) > MaxBody {
			return malformed("record %d has %d bytes", f.Seq, len(f.Body))
		}
	}
	return nil
}

// ValidRun reports whether a run can have this name, which is used in paths, file names and subjects: it consists
// of letters, digits, '-', '_' and '.', begins with a letter or a digit, and has at most MaxRunID bytes.
func ValidRun(name string) bool {
	return name != "" && len(name) <= MaxRunID && !strings.ContainsAny(name[:1], "-_.") && plain(name)
}

// validName reports whether s is empty or valid as the name of a tenant or a host, which are used in subjects, keys and file
// names.
func validName(s string) bool { return len(s) <= MaxName && plain(s) }

func plain(s string) bool {
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// Row is a record in a store. All fields but Body and Salt are extracted from Body for
// searches; only Body is evidence.
type Row struct {
	Head
	Tenant string
	Body   []byte
	Salt   [16]byte
	Erased *[32]byte // as in Frame; Head then has only run, seq and time
	Mark   *Mark     // of a row from WithMarks that is not good; otherwise nil
	Early  bool      // it is from its host's log or live feed, before its segment is sealed; not from a store
}

// Frame returns the record as in the log.
func (r Row) Frame() Frame { return Frame{Seq: r.Seq, Salt: r.Salt, Body: r.Body, Erased: r.Erased} }

// Query selects records of one run, in order of seq.
type Query struct {
	Tenant   string // of the run, as in Filter; a run of another tenant has no records. With it the query is faster.
	Run      string
	Kinds    []audit.Kind // all when empty
	From, To time.Time    // From inclusive, To exclusive; zero means unbounded
	AfterSeq uint64       // only records with a greater seq
	Limit    int          // 0 means no limit
}

// Search selects records over all runs, newest first: those of one time by run and seq, the greatest
// first. It ignores empty fields; all others must match. At least one of Path to
// Text, or From, must be set.
type Search struct {
	Tenant   string // NoTenant for records without one, empty for any
	Path     string // exactly this file or program, or, of notes, this run
	Host     string // exactly this host name or address
	Hash     string // SHA-256 of a file's content, hex
	Secret   string // name of a credential
	Rule     string // of a finding
	Text     string // anywhere in the record's JSON, ignoring the case of ASCII letters; it scans the records that otherwise match
	Kinds    []audit.Kind
	From, To time.Time // as in Query
	// Before is the last record of the previous page: only records after it, in Search's order. Its Time, Run and Seq are used.
	Before *Head
	Limit  int // 0 means no limit
}

// Filter selects runs, newest first: by start, and with one start by name, the greatest first.
type Filter struct {
	Tenant   string // NoTenant for runs without one, empty for any
	Class    Class  // empty for any
	Project  string
	Status   Status
	Findings bool      // only runs with findings
	From, To time.Time // of their start; as in Query
	// Before is the last run of the previous page: only runs after it.
	// Its ID and Start are used.
	Before *Run
	Limit  int // 0 means no limit
}

// NoTenant selects runs without a tenant, since an empty name means any. No tenant can have that name.
const NoTenant = "(none)"

// TenantFilter returns the value for Filter.Tenant and Query.Tenant that selects a tenant; for "" runs without one.
func TenantFilter(tenant string) string { return cmp.Or(tenant, NoTenant) }

// Class is the class of a run, by the prefix of its name.
type Class string

// The classes of runs.
const (
	Sandboxes Class = "run"    // an agent's commands in a sandbox
	Accesses  Class = "access" // accesses to records through a host's API
)

// AccessPrefix begins the names of access logs. Last never names one.
const AccessPrefix = "a-"

// Class returns the class of the run.
func (r Run) Class() Class {
	if strings.HasPrefix(r.ID, AccessPrefix) {
		return Accesses
	}
	return Sandboxes
}

// Manifest is one element of a run's chain of signed manifests.
type Manifest struct {
	Index uint64
	First uint64
	Last  uint64
	Count uint64 // of frames that came with it
	Root  [32]byte
	Bytes []byte
}

// Ref is a segment in a store's Feed.
type Ref struct {
	Tenant string
	Host   string
	Run    string
	Index  uint64
	First  uint64
	Last   uint64
	Count  uint64
	// Cursor is the argument of Feed that continues after this segment. Its format is private to the store.
	Cursor string
}

// Store is the interface of a database of records. It is safe for concurrent use by goroutines and processes. Package
// storetest has the tests that every implementation passes.
type Store interface {
	// Ingest adds segments: their records, their manifests and what they change in the runs' summaries. When it returns
	// nil all of them are durable and visible. Existing rows do not change, so that repeats are harmless, however the
	// segments are grouped. ErrConflict and ErrMalformed mean that one of them can never be ingested; the caller can pass
	// them one by one to find it. After any error, parts may be stored.
	Ingest(ctx context.Context, segs ...Segment) error
	// Repair repairs the rows of one segment that were altered in the store. If the segment's manifest is there, byte
	// for byte, it writes rows that are missing or differ from the segment's, removes rows between First and Last that
	// the segment lacks, and computes the summary of the run from the rows. Another manifest is ErrConflict; if there is
	// none, Repair is Ingest. Frames that are not those which the manifest names are ErrMalformed. So Repair never
	// changes what was recorded first: it can only write what the first manifest has signed. What is erased stays
	// erased; a record that is erased in the segment only is not erased in the store. After an error, or a kill, another
	// Repair finishes.
	Repair(ctx context.Context, seg Segment) error
	// Records yields the matches, in order of seq; it stops after an error. The caller owns the bodies.
	Records(ctx context.Context, q Query) iter.Seq2[Row, error]
	// Search yields the matches, newest first, each row as it is found. It may see rows that are ingested meanwhile.
	// If ctx ends before that, it yields a *CutError, which has the position that it reached.
	Search(ctx context.Context, s Search) iter.Seq2[Row, error]
	// Runs returns summaries, newest first.
	Runs(ctx context.Context, f Filter) ([]Run, error)
	// Run finds a run by its name, by a unique prefix, or the newest of the class Sandboxes as Last;
	// tenant "" means any, NoTenant those without one.
	// The error is ErrNotFound or ErrAmbiguous.
	Run(ctx context.Context, tenant, name string) (Run, error)
	// Manifests returns the run's chain in order.
	Manifests(ctx context.Context, tenant, run string) ([]Manifest, error)
	// Feed returns segments in the order of ingestion, after a cursor ("" for
	// all); limit 0 means no limit. It can return a segment twice, but never skips one.
	Feed(ctx context.Context, after string, limit int) ([]Ref, error)
	// Erase permanently removes the contents of a record, and keeps its seq and its leaf; tenant is as in Run. When it
	// returns nil the erasure is complete. It can be repeated. The error is ErrNotFound or ErrNoRecord.
	Erase(ctx context.Context, tenant, run string, seq uint64) error
	Close() error
}

// Last is the name with which Run finds the newest run.
const Last = "last"
