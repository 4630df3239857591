// Package monitor reads a host's log from outside, entry by entry, and detects what no proof about one entry can: two
// histories of one run. It needs the log's key and what the log publishes (C2SP tlog-tiles): its checkpoint and its entries.
//
//	checkpoint --signed?--> not smaller than the kept one? --> the new entries
//	     |                                                          |
//	     '--- its root is that of the kept and new entries? --------'--> does one contradict an earlier one?
//
// It computes the tree from the first entry on, and so needs neither proofs nor tiles of hashes.
package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/entries"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
)

// Alarm is a violation of the rules that an honest host's log follows.
type Alarm struct {
	Name   string    `json:"name"`
	Detail string    `json:"detail"`
	Time   time.Time `json:"time"`           // when it was detected
	Note   string    `json:"note,omitempty"` // the checkpoint that shows it, as signed
}

// The names of alarms.
const (
	Forged     = "checkpoint-forged"  // not signed by a key of the log, or of another log
	RolledBack = "log-rolled-back"    // it has fewer entries than the kept checkpoint
	Forked     = "log-forked"         // two signed trees of one size have different roots
	Altered    = "entries-altered"    // its root is not that of the entries that it publishes
	Twice      = "entry-twice"        // two entries about one segment or one erasure differ
	Again      = "entry-again"        // an entry about a run is in the log twice
	Order      = "entry-out-of-order" // the log has an entry of a segment, and none of the preceding segment
	Unknown    = "entry-unknown"      // this version does not know the kind of the entry
)

// ErrAlarm: the log violates its rules; the report has the alarms.
var ErrAlarm = errors.New("the log is not that of an honest host")

// maxAlarms bounds the alarms that are kept.
const maxAlarms = 1000

// Report is the result of a check.
type Report struct {
	Log    string  `json:"log"`    // its name
	Size   uint64  `json:"size"`   // entries under a checkpoint that were read in all checks
	Read   uint64  `json:"read"`   // of these, in this check
	Alarms []Alarm `json:"alarms"` // of this check, and all earlier ones that the log has signed
	// Checkpoint is the signed note over the Size entries, empty if none was read. Two monitors that were shown two
	// logs have notes that contradict each other.
	Checkpoint string `json:"checkpoint,omitempty"`
}

// Monitor stores in one file how far it has read, and its alarms. It is not safe for concurrent use.
type Monitor struct {
	origin string
	keys   note.Verifiers
	source Source
	index  *entries.Index
}

// Open opens the state in a file, created if necessary, for the log whose keys, all of one name, are given.
func Open(state string, source Source, keys ...note.Verifier) (*Monitor, error) {
	if len(keys) == 0 {
		return nil, errors.New("monitor: no key of the log")
	}
	for _, k := range keys {
		if k.Name() != keys[0].Name() {
			return nil, fmt.Errorf("monitor: keys of two logs, %s and %s", keys[0].Name(), k.Name())
		}
	}
	index, err := entries.OpenKept(state)
	if err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	return &Monitor{keys[0].Name(), note.VerifierList(keys...), source, index}, nil
}

// Close closes the state.
func (m *Monitor) Close() error { return m.index.Close() }

// Keys of the notes in the index.
const (
	keptCheckpoint = "checkpoint" // signed: all entries under it were read
	keptRange      = "range"      // the hashes of the tree's complete subtrees, largest first
	keptAlarms     = "alarms"
)

// Check reads what the log has published since the last check. The error is ErrAlarm if the log violates its rules, now
// or in an earlier check; any other error means that the check failed.
func (m *Monitor) Check(ctx context.Context) (Report, error) {
	for tries := 1; ; tries++ {
		signed, err := m.source.Checkpoint(ctx)
		if err != nil {
			return Report{Log: m.origin}, fmt.Errorf("monitor: the log's checkpoint: %w", err)
		}
		r, err := m.Follow(ctx, signed)
		if tries == maxTries || !errors.Is(err, fs.ErrNotExist) {
			return r, err
		}
	}
}

// maxTries bounds how often Check restarts because the log has replaced a partial bundle by a wider one.
const maxTries = 3

// Follow is Check up to a checkpoint that need not be published yet: a witness calls it before it cosigns one.
func (m *Monitor) Follow(ctx context.Context, signed []byte) (Report, error) {
	r := Report{Log: m.origin}
	var found []Alarm
	keep := func(tx *entries.Tx) (err error) {
		r.Alarms, err = raise(tx, found)
		return err
	}
	err := m.index.Do(ctx, func(tx *entries.Tx) (err error) { // in one transaction, so that no entry is read twice
		if found, err = m.advance(ctx, tx, signed, &r); err != nil {
			return err
		}
		return keep(tx)
	})
	if errors.Is(err, errAltered) {
		err = m.index.Do(ctx, keep)
	}
	if err != nil {
		return r, fmt.Errorf("monitor: %w", err)
	}
	if len(r.Alarms) > 0 {
		return r, ErrAlarm
	}
	return r, nil
}

// shown reports whether the log itself has signed the evidence of an alarm. Other alarms may be caused by a party between
// log and monitor: they are reported and not kept.
func (a Alarm) shown() bool {
	return a.Name == Twice || a.Name == Again || a.Name == Order || a.Name == Unknown || a.Name == Forked
}

// raise adds alarms to the kept ones, without duplicates, and returns all.
func raise(tx *entries.Tx, found []Alarm) (all []Alarm, err error) {
	text, err := tx.Note(keptAlarms)
	if err != nil {
		return nil, err
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &all); err != nil {
			return nil, fmt.Errorf("alarms that were kept: %w", err)
		}
	}
	var passing []Alarm
	for _, a := range found {
		a.Time = time.Now().UTC().Truncate(time.Second)
		if !a.shown() {
			passing = append(passing, a)
			continue
		}
		same := func(b Alarm) bool { return a.Name == b.Name && a.Detail == b.Detail }
		if len(all) < maxAlarms && !slices.ContainsFunc(all, same) {
			all = append(all, a)
		}
	}
	if text, err = json.Marshal(all); err != nil {
		return nil, err
	}
	return append(all, passing...), tx.Keep(keptAlarms, text)
}

// open verifies and parses a checkpoint that a key of the log signed.
func (m *Monitor) open(signed []byte) (statement.Checkpoint, error) {
	n, err := note.Open(signed, m.keys)
	if err != nil {
		return statement.Checkpoint{}, err
	}
	c, err := statement.ParseCheckpoint(n.Text)
	if err == nil && c.Origin != m.origin {
		err = fmt.Errorf("it is of the log %.80q", c.Origin)
	}
	return c, err
}

// advance reads the entries between the kept checkpoint and this one, and returns the alarms. The error
// is errAltered if the entries do not have the signed root.
func (m *Monitor) advance(ctx context.Context, tx *entries.Tx, signed []byte, r *Report) (found []Alarm, err error) {
	alarm := func(name, format string, args ...any) []Alarm {
		return []Alarm{{Name: name, Detail: fmt.Sprintf(format, args...), Note: string(signed)}}
	}
	c, err := m.open(signed)
	if err != nil {
		return alarm(Forged, "%v", err), nil
	}
	text, err := tx.Note(keptCheckpoint)
	if err != nil {
		return nil, err
	}
	var kept statement.Checkpoint
	if len(text) > 0 {
		if kept, err = m.open(text); err != nil {
			return nil, fmt.Errorf("the checkpoint that was kept: %w", err)
		}
	}
	r.Size, r.Checkpoint = kept.Size, string(text)
	switch {
	case c.Size < kept.Size:
		return alarm(RolledBack, "it has %d entries, fewer than the %d before", c.Size, kept.Size), nil
	case c.Size == kept.Size && kept.Size > 0:
		if c.Root != kept.Root {
			found = alarm(Forked, "two trees of %d entries have different roots", c.Size)
		}
		return found, nil
	}
	root, conflicts, err := m.read(ctx, tx, kept.Size, c.Size)
	if err != nil {
		return nil, err
	}
	if root != c.Root {
		return alarm(Altered, "the %d entries that were read before and those published since do not have the root that it signed for %d entries", kept.Size, c.Size), errAltered
	}
	for _, conflict := range conflicts {
		found = append(found, alarm(name(conflict.Err), "%v", conflict)...)
	}
	r.Size, r.Read, r.Checkpoint = c.Size, c.Size-kept.Size, string(signed)
	return found, tx.Keep(keptCheckpoint, signed)
}

// errAltered rolls back the transaction that read entries without the signed root.
var errAltered = errors.New("altered")

func name(err error) string {
	switch err {
	case entries.ErrTwice:
		return Twice
	case entries.ErrAgain:
		return Again
	case entries.ErrOrder:
		return Order
	}
	return Unknown
}

// read adds the entries from one size to another to the index, and returns the root of all.
func (m *Monitor) read(ctx context.Context, tx *entries.Tx, from, to uint64) (root merkle.Hash, conflicts []*entries.Conflict, err error) {
	tree, err := keptTree(tx, from)
	if err != nil {
		return root, nil, err
	}
	at := from
	for entry, err := range between(ctx, m.source, from, to) {
		if err != nil {
			return root, nil, err
		}
		conflict, err := tx.Take(at, entry)
		if err == nil {
			err = tree.Append(rfc6962.DefaultHasher.HashLeaf(entry), nil)
		}
		if err != nil {
			return root, nil, err
		}
		if conflict != nil && len(conflicts) < maxAlarms {
			conflicts = append(conflicts, conflict)
		}
		at++
	}
	sum := rfc6962.DefaultHasher.EmptyRoot()
	if to > 0 {
		if sum, err = tree.GetRootHash(nil); err != nil {
			return root, nil, err
		}
	}
	return merkle.Hash(sum), conflicts, tx.Keep(keptRange, slices.Concat(tree.Hashes()...))
}

// keptTree returns the tree of the entries that were read before.
func keptTree(tx *entries.Tx, size uint64) (*compact.Range, error) {
	factory := &compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	if size == 0 {
		return factory.NewEmptyRange(0), nil
	}
	text, err := tx.Note(keptRange)
	if err != nil {
		return nil, err
	}
	n := len(merkle.Hash{})
	if len(text) != n*bits.OnesCount64(size) {
		return nil, errors.New("the kept tree does not have the checkpoint's size")
	}
	return factory.NewRange(0, size, slices.Collect(slices.Chunk(text, n)))
}

// String describes the report, for a terminal.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "log %.80q: %d entries, %d of them new", r.Log, r.Size, r.Read)
	if len(r.Alarms) == 0 {
		b.WriteString(", one history")
	}
	for _, a := range r.Alarms {
		fmt.Fprintf(&b, "\nALARM %s, found %s: %q", a.Name, a.Time.Format(time.RFC3339), a.Detail)
	}
	return b.String()
}
