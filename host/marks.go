package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
)

const (
	// markedParts is the number of segments whose leaves Marks keeps: a search alternates between runs.
	markedParts = 16
	// markedBytes bounds the size of the records that Marks reads to check summaries of runs.
	markedBytes = 64 << 20
	// chainAge is the maximum age of a list of manifests that ends before the wanted record.
	chainAge = 200 * time.Millisecond
)

// Marks checks displayed records against what a host signed: it compares each record with its leaf in
// the signed segment, from the log if it is here, and each column with the record's bytes. It is not safe
// for concurrent use. It proves nothing about records that are not displayed; Fsck and verification do.
type Marks struct {
	host       *Host
	shown      Reader
	signed     manifests // nil: only runs of this host are displayed
	keys       note.Verifiers
	logs       bool // all rows are read from logs here
	chains     map[string]*chain
	parts      *lru.Cache[partKey, *part]
	budget     int64
	lastReason string // the last reason why something could not be read
}

// manifests is the part of a store that returns signed manifests.
type manifests interface {
	Manifests(ctx context.Context, tenant, run string) ([]store.Manifest, error)
}

// Marks returns marks for the rows of r. It also reads r where there is no log here.
func (c Checks) Marks(r Reader) (*Marks, error) {
	keys, err := c.host.Fleet().Known()
	if err != nil {
		return nil, err
	}
	parts, err := lru.New[partKey, *part](markedParts)
	m := &Marks{host: c.host, shown: r, keys: keys, chains: map[string]*chain{}, parts: parts, budget: markedBytes}
	switch inner := r.(type) {
	case logReader:
		m.logs = true
	case *ahead:
		m.shown = inner.Reader
	case unclosed:
		m.shown = inner.Reader
	}
	m.signed, _ = m.shown.(manifests)
	return m, err
}

// chain is the signed manifests of a run, before verification.
type chain struct {
	run    string
	here   bool // they are from the run's log
	read   time.Time
	firsts []uint64 // the first seqs of the segments
	signed [][]byte // by the same index; nil for manifests that are here
}

// part is a segment whose manifest was verified. If the manifest's mark is not good, the fields after mark are not set.
type part struct {
	manifest statement.Manifest
	host     string // name of the key that signed
	mark     store.Mark
	seqs     []uint64
	leaves   []merkle.Hash
}

type partKey struct {
	run   string
	index int
}

// Row returns the mark of a row: whether it is what was signed.
func (m *Marks) Row(ctx context.Context, row store.Row) store.Mark {
	c, err := m.chain(ctx, row.Tenant, row.Run)
	if err != nil {
		return m.cannot(err)
	}
	if len(c.firsts) == 0 && !c.here && !row.Early {
		return store.Mark{State: store.Unsigned, Text: store.ErrUnsigned.Error()}
	}
	p, err := m.covering(ctx, c, row)
	switch {
	case err != nil:
		return m.cannot(err)
	case p == nil && row.Early && (!c.here || m.host.RunLogs().Live(row.Run)):
		return store.Mark{State: store.Live, Text: "it is not sealed yet"}
	case p == nil:
		return store.Mark{State: store.Unsigned, Text: fmt.Sprintf("no signed segment of the run has a record %d", row.Seq)}
	case p.mark.State != store.Holds:
		return p.mark
	}
	return m.compare(c, p, row)
}

// cannot is the mark for data that cannot be read. The reason can contain a path of this host, so it only goes to the host's log, once.
func (m *Marks) cannot(err error) store.Mark {
	if text := err.Error(); text != m.lastReason {
		m.lastReason = text
		m.host.warn("the signed data cannot be read: " + text)
	}
	return store.Mark{State: store.Cannot, Text: "the signed data cannot be read here; the server's log has the reason"}
}

func fails(format string, args ...any) store.Mark {
	return store.Mark{State: store.Fails, Text: fmt.Sprintf(format, args...)}
}

// compare compares a row with the signed leaf, and its columns with its bytes.
func (m *Marks) compare(c *chain, p *part, row store.Row) store.Mark {
	i, signed := slices.BinarySearch(p.seqs, row.Seq)
	switch {
	case !signed:
		return store.Mark{State: store.Unsigned, Text: fmt.Sprintf("signed segment %d has no record %d", p.manifest.Segment, row.Seq)}
	case merkle.Hash(row.Frame().Leaf()) != p.leaves[i]:
		return fails("it is not the record that was signed")
	case row.Tenant != p.manifest.Tenant:
		return fails("it was signed as another tenant's")
	}
	head := store.Head{Run: row.Run, Seq: row.Seq, Time: row.Time}
	if row.Erased == nil {
		var err error
		if head, err = store.HeadOf(row.Run, row.Frame()); err != nil {
			return fails("%v", err)
		}
	}
	if !row.Head.SameColumns(head) {
		return fails("the store's columns differ from the record: %s", strings.Join(row.Head.Differing(head), ", "))
	}
	if row.Erased != nil {
		return m.erased(c, row)
	}
	return store.Mark{State: store.Holds}
}

// erased reports as a mark whether a record that is erased in the store is also erased in the log.
func (m *Marks) erased(c *chain, row store.Row) store.Mark {
	if c.here {
		for f, err := range m.host.RunLogs().framesFrom(row.Run, row.Seq) {
			if err != nil || f.Seq > row.Seq {
				break
			}
			if f.Seq == row.Seq && f.Erased == nil {
				return fails("it is erased in the store, but not in the log")
			}
			if f.Seq == row.Seq {
				return store.Mark{State: store.Holds}
			}
		}
	}
	return store.Mark{State: store.Unchecked, Text: "it is erased, and its log is not here"}
}

// chain returns the manifests of a run: from its log, else from the store.
func (m *Marks) chain(ctx context.Context, tenant, run string) (*chain, error) {
	if c := m.chains[run]; c != nil {
		return c, nil
	}
	c := &chain{run: run, here: m.host.RunLogs().Has(run), read: time.Now()}
	var err error
	switch {
	case c.here:
		var files []string
		files, err = filepath.Glob(filepath.Join(m.host.RunDir(run), "*"+wal.ManifestSuffix))
		for _, file := range files {
			if first, ok := wal.ParseName(filepath.Base(file), wal.ManifestSuffix); ok {
				c.firsts = append(c.firsts, first)
			}
		}
	case m.signed != nil:
		var all []store.Manifest
		all, err = m.signed.Manifests(ctx, tenant, run)
		for _, one := range all {
			c.firsts = append(c.firsts, one.First)
			c.signed = append(c.signed, one.Bytes)
		}
	}
	if err != nil {
		return nil, err
	}
	m.chains[run] = c
	return c, nil
}

// covering returns the segment that contains a row's seq, nil if there is none.
func (m *Marks) covering(ctx context.Context, c *chain, row store.Row) (*part, error) {
	for {
		i, begins := slices.BinarySearch(c.firsts, row.Seq)
		if !begins {
			i--
		}
		if i >= 0 {
			p, err := m.part(ctx, c, i, row.Tenant)
			if err != nil || p.mark.State != store.Holds || p.manifest.Count > 0 && row.Seq <= p.manifest.Last {
				return p, err
			}
		}
		if time.Since(c.read) < chainAge || c.here && row.Early && m.host.RunLogs().Live(c.run) {
			return nil, nil
		}
		delete(m.chains, c.run) // more segments may have been sealed
		fresh, err := m.chain(ctx, row.Tenant, c.run)
		if err != nil {
			return nil, err
		}
		*c = *fresh
	}
}

// part verifies a segment's manifest, and reads its leaves.
func (m *Marks) part(ctx context.Context, c *chain, i int, tenant string) (*part, error) {
	key := partKey{c.run, i}
	if p, there := m.parts.Get(key); there {
		return p, nil
	}
	p, err := m.manifest(c, i)
	if err != nil {
		return nil, err
	}
	if p.mark.State == store.Holds && p.manifest.Count > 0 {
		if err := m.leaves(ctx, c, p, tenant); err != nil {
			return nil, err
		}
	}
	m.parts.Add(key, p)
	return p, nil
}

// manifest verifies the signature of a manifest.
func (m *Marks) manifest(c *chain, i int) (*part, error) {
	signed := []byte(nil)
	if c.here {
		var err error
		signed, err = regular.ReadFile(filepath.Join(m.host.RunDir(c.run), wal.FileName(c.firsts[i], wal.ManifestSuffix)))
		if err != nil {
			return nil, err
		}
	} else {
		signed = c.signed[i]
	}
	p := &part{mark: store.Mark{State: store.Holds}}
	n, err := note.Open(signed, m.keys)
	var unknown *note.UnverifiedNoteError
	if errors.As(err, &unknown) { // the host's key may have been rotated since
		if m.keys, err = m.host.Fleet().Known(); err != nil {
			return nil, err
		}
		n, err = note.Open(signed, m.keys)
	}
	switch {
	case errors.As(err, &unknown):
		p.mark = m.stranger(c, unknown.Note)
		return p, nil
	case err == nil:
		p.manifest, err = statement.ParseManifest(n.Text)
	}
	switch {
	case err != nil:
		p.mark = fails("manifest %d is not validly signed: %v", i, err)
	case p.manifest.Run != c.run || p.manifest.First != c.firsts[i] || p.manifest.Segment != uint64(i):
		p.mark = fails("manifest %d was signed for another run or place", i)
	default:
		p.host = n.Sigs[0].Name
	}
	return p, nil
}

// stranger is the mark for a manifest that is signed by an unknown key. If all runs are this host's, such a
// signature is not valid.
func (m *Marks) stranger(c *chain, n *note.Note) store.Mark {
	by := "no known key"
	if len(n.UnverifiedSigs) > 0 {
		by = fmt.Sprintf("%s+%08x", n.UnverifiedSigs[0].Name, n.UnverifiedSigs[0].Hash)
	}
	if m.host.config.localStore() {
		there := "this host has no log of the run"
		if c.here {
			there = "the run has a log on this host"
		}
		return store.Mark{State: store.Unsigned, Text: fmt.Sprintf("it is not signed by this host's key but by %s, and %s", by, there)}
	}
	return store.Mark{State: store.Cannot, Text: fmt.Sprintf("it is signed by %s, whose key is not known here", by)}
}

// leaves reads the leaves under a segment's root: from their file, or computed from the records.
func (m *Marks) leaves(ctx context.Context, c *chain, p *part, tenant string) error {
	want := p.manifest
	if c.here && want.Count == want.Last-want.First+1 {
		data, err := regular.ReadFile(filepath.Join(m.host.RunDir(c.run), wal.FileName(want.First, wal.LeavesSuffix)))
		if err == nil && uint64(len(data)) == want.Count*uint64(len(merkle.Hash{})) {
			for i := range want.Count {
				p.seqs = append(p.seqs, want.First+i)
				p.leaves = append(p.leaves, merkle.Hash(data[i*uint64(len(merkle.Hash{})):]))
			}
			if merkle.Root(p.leaves) == want.Root {
				return nil
			}
		}
	}
	return m.sum(ctx, c, p, tenant, func(store.Frame) error { return nil })
}

// sum computes the leaves of a segment's records, calls each with every record, and compares the root.
func (m *Marks) sum(ctx context.Context, c *chain, p *part, tenant string, each func(store.Frame) error) error {
	p.seqs, p.leaves = nil, nil
	for f, err := range m.frames(ctx, c, p.manifest, tenant) {
		if err == nil {
			err = each(f)
		}
		if err != nil {
			return err
		}
		p.seqs = append(p.seqs, f.Seq)
		p.leaves = append(p.leaves, f.Leaf())
	}
	if merkle.Root(p.leaves) != p.manifest.Root || !slices.IsSorted(p.seqs) {
		p.mark = fails("records %d to %d are not those that were signed in segment %d", p.manifest.First, p.manifest.Last, p.manifest.Segment)
	}
	return nil
}

// frames yields the records of a segment: from the log, else from the reader.
func (m *Marks) frames(ctx context.Context, c *chain, of statement.Manifest, tenant string) iter.Seq2[store.Frame, error] {
	return func(yield func(store.Frame, error) bool) {
		n := 0
		if c.here {
			for f, err := range wal.ReadSegment(filepath.Join(m.host.RunDir(c.run), wal.FileName(of.First, wal.SegmentSuffix))) {
				if n == 0 && errors.Is(err, fs.ErrNotExist) {
					break // retention removed the segment
				}
				if n++; !yield(frameOf(f), err) || err != nil {
					return
				}
			}
		}
		if n > 0 {
			return
		}
		q := store.Query{Tenant: tenant, Run: c.run, AfterSeq: max(of.First, 1) - 1}
		for row, err := range m.shown.Records(ctx, q) {
			if err == nil && row.Seq > of.Last {
				return
			}
			if !yield(row.Frame(), err) || err != nil {
				return
			}
		}
	}
}
