package clickhouse

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// classOf returns the retention class of a kind. A kind of a later version is evidence.
func classOf(kind audit.Kind) Class {
	switch kind {
	case audit.KindOutput:
		return Output
	case audit.KindExec, audit.KindExit, audit.KindFile, audit.KindDNS, audit.KindFlow, audit.KindHTTP:
		return Activity
	}
	return Evidence
}

// recordColumns are written for each record; the server sets "ingested".
const recordColumns = "tenant, run, time, seq, leaf, class, root, kind, observer, step, proc, path, host, hash, secret, rule, salt, body"

// rowBuffer collects rows by column, as the driver and the server need them.
type rowBuffer struct {
	tenant, run, class, kind, observer, step, proc   []string
	path, host, hash, secret, rule, leaf, root, salt []string
	body                                             [][]byte
	time                                             []time.Time
	seq                                              []uint64
}

// grow reserves space for n rows.
func (b *rowBuffer) grow(n int) {
	for _, c := range b.strings() {
		*c = slices.Grow(*c, n)
	}
	b.body, b.time, b.seq = slices.Grow(b.body, n), slices.Grow(b.time, n), slices.Grow(b.seq, n)
}

func (b *rowBuffer) strings() []*[]string {
	return []*[]string{&b.tenant, &b.run, &b.class, &b.kind, &b.observer, &b.step, &b.proc,
		&b.path, &b.host, &b.hash, &b.secret, &b.rule, &b.leaf, &b.root, &b.salt}
}

// add takes a frame with its head and leaf.
func (b *rowBuffer) add(seg *segment, f store.Frame, h store.Head, leaf [32]byte) {
	b.tenant, b.run = append(b.tenant, seg.Tenant), append(b.run, seg.Run)
	b.time, b.seq = append(b.time, h.Time), append(b.seq, f.Seq)
	b.leaf, b.root = append(b.leaf, string(leaf[:])), append(b.root, seg.rootText)
	b.class = append(b.class, string(classOf(h.Kind)))
	b.kind, b.observer, b.step = append(b.kind, string(h.Kind)), append(b.observer, string(h.Observer)), append(b.step, h.Step)
	b.proc, b.path, b.host = append(b.proc, h.Proc), append(b.path, h.Path), append(b.host, h.Host)
	b.hash, b.secret, b.rule = append(b.hash, h.Hash), append(b.secret, h.Secret), append(b.rule, h.Rule)
	b.salt, b.body = append(b.salt, string(f.Salt[:])), append(b.body, f.Body)
}

// fill appends the rows to a batch of recordColumns.
func (b *rowBuffer) fill(batch driver.Batch) error {
	return fill(batch, b.tenant, b.run, b.time, b.seq, b.leaf, b.class, b.root, b.kind, b.observer, b.step, b.proc,
		b.path, b.host, b.hash, b.secret, b.rule, b.salt, b.body)
}

func fill(batch driver.Batch, columns ...any) error {
	for i, c := range columns {
		if err := batch.Column(i).Append(c); err != nil {
			return err
		}
	}
	return nil
}

// token identifies the rows, so that the server deduplicates a repeated insert.
func (b *rowBuffer) token() string {
	h := sha256.New()
	for _, leaf := range b.leaf {
		h.Write([]byte(leaf))
	}
	return string(h.Sum(nil))
}

// readColumns are read of each record. Erased contents are not returned even
// while their removal is in progress: gone is an expression over a row.
const readColumns = "tenant, run, seq, time, leaf, root, gone, if(gone, '', kind), if(gone, '', observer), if(gone, '', step), if(gone, '', proc), " +
	"if(gone, '', path), if(gone, '', host), if(gone, '', hash), if(gone, '', secret), if(gone, '', rule), " +
	"if(gone, toFixedString('', 16), salt), if(gone, '', body)"

// found is a row with the root of its segment.
type found struct {
	store.Row
	leaf, root [32]byte
}

// scanRow reads readColumns, and any columns selected after them.
func scanRow(rows driver.Rows, more ...any) (found, error) {
	var f found
	var kind, observer, leaf, root, salt, body string
	var gone uint8
	err := rows.Scan(append([]any{&f.Tenant, &f.Run, &f.Seq, &f.Time, &leaf, &root, &gone, &kind, &observer, &f.Step, &f.Proc,
		&f.Path, &f.Host, &f.Hash, &f.Secret, &f.Rule, &salt, &body}, more...)...)
	if err != nil {
		return f, err
	}
	copy(f.leaf[:], leaf)
	copy(f.root[:], root)
	f.Time = f.Time.UTC()
	if gone != 0 {
		f.Erased = &f.leaf
		return f, nil
	}
	f.Kind, f.Observer, f.Body = audit.Kind(kind), audit.Observer(observer), []byte(body)
	copy(f.Salt[:], salt)
	return f, nil
}
