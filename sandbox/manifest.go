package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/guest/channel"
)

// manifest records the files of one copy: first lists of files, then their number and the Merkle root of all lists.
type manifest struct {
	recorder  Recorder
	direction string
	dir       string
	tree      merkle.CopyTree // of the files with masked names, as recorded
}

func newManifest(r Recorder, direction, dir string) *manifest {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return &manifest{recorder: r, direction: direction, dir: dir}
}

// list returns a function that records files and returns when the record is durable.
func (m *manifest) list(ctx context.Context) channel.List {
	return func(files []audit.CopiedFile) error {
		salt := make([]byte, 16)
		if _, err := rand.Read(salt); err != nil {
			return err
		}
		c := &audit.Copy{Direction: m.direction, Op: audit.CopyList, First: m.tree.Count(), Salt: hex.EncodeToString(salt), Files: files}
		seq, err := m.recorder.Post(ctx, copyEvent(c))
		if err != nil {
			return fmt.Errorf("record: %w", err)
		}
		if err := m.tree.Add(c); err != nil { // Post has masked the names in c
			return err
		}
		return m.recorder.Sync(ctx, seq)
	}
}

// end records the totals, and err as the reason if the copy is incomplete. It returns err joined with its own error.
func (m *manifest) end(ctx context.Context, err error) error {
	c := &audit.Copy{Direction: m.direction, Op: audit.CopyEnd, Dir: audit.Text(m.dir), Count: m.tree.Count(), Bytes: m.tree.Bytes(), Root: m.tree.Root().String()}
	if err != nil {
		c.Reason = err.Error()
	}
	if _, failed := m.recorder.Record(context.WithoutCancel(ctx), copyEvent(c)); failed != nil {
		err = errors.Join(err, fmt.Errorf("record the copy: %w", failed))
	}
	return err
}

func copyEvent(c *audit.Copy) audit.Event {
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindCopy, Copy: c}
}
