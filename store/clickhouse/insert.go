package clickhouse

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/custody-project/custody/store"
)

// inserter adds rows to the tables records and segments.
type inserter struct{ db *database }

const dedupToken = "insert_deduplication_token"

// unheardOf returns a unique token, so that the server does not take an insert for a repeat. The setting
// insert_deduplicate=0 does not suffice: some servers compare the rows regardless.
func unheardOf() driver.Settings { return driver.Settings{dedupToken: rand.Text()} }

// records adds rows; the server drops an insert whose token it remembers. An empty token is never remembered.
func (t inserter) records(ctx context.Context, b *rowBuffer, token string) error {
	settings := unheardOf()
	if token != "" {
		settings[dedupToken] = "rows-" + hex.EncodeToString([]byte(token))
	}
	batch, err := t.db.conn.PrepareBatch(driver.Context(ctx, driver.WithSettings(settings)), "INSERT INTO records ("+recordColumns+")")
	if err != nil {
		return err
	}
	if err := b.fill(batch); err != nil {
		return errors.Join(err, batch.Abort())
	}
	return batch.Send()
}

const segmentColumns = "tenant, host, run, idx, first, last, count, root, digest, frames, manifest, first_time, last_seq, " +
	"start, end, project, template, tier, mode, result, exit_code, findings, gaps, lost"

// markers adds the rows of segments, with their contributions to the summary of their run.
func (t inserter) markers(ctx context.Context, segs []*segment, sums []store.Run) error {
	if len(segs) == 0 {
		return nil
	}
	// The server would drop a marker that it has seen before, even if it was deleted since.
	ctx = driver.Context(ctx, driver.WithSettings(unheardOf()))
	batch, err := t.db.conn.PrepareBatch(ctx, "INSERT INTO segments ("+segmentColumns+")")
	if err != nil {
		return err
	}
	for i, in := range segs {
		r := sums[i]
		err := batch.Append(in.Tenant, in.Host, in.Run, in.Index, in.First, in.Last, uint64(len(in.Frames)), in.rootText,
			string(in.digest[:]), string(in.frames[:]), string(in.Manifest), moment(r.FirstTime), r.LastSeq, moment(r.Start), r.End,
			r.Project, r.Template, r.Tier, r.Mode, string(r.Result), number(r.ExitCode), r.Findings, r.Gaps, r.Lost)
		if err != nil {
			return errors.Join(err, batch.Abort())
		}
	}
	return batch.Send()
}

// moment returns nil for a zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func number(n *int) *int64 {
	if n == nil {
		return nil
	}
	wide := int64(*n)
	return &wide
}
