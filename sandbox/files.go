package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
)

// FileCall is an operation on a file of the session, and who asked for it.
type FileCall struct {
	channel.FileRequest
	Caller audit.Text
}

// File carries out an operation on a file of the session, and returns when its record is durable. The record has the SHA-256 of the content
// that was written or read, not the content, which is not redacted.
func (s *Sandbox) File(ctx context.Context, c FileCall, t channel.FileTransfer) (channel.FileResult, error) {
	if err := s.holds.wait(ctx); err != nil {
		return channel.FileResult{}, err
	}
	sum := &tally{hash: sha256.New()}
	if t.In != nil {
		t.In = io.TeeReader(t.In, sum)
	}
	if t.Out != nil {
		t.Out = io.MultiWriter(sum, t.Out)
	}
	res, err := s.guest.File(ctx, c.FileRequest, t)
	_, recorded := s.parts.Recorder.Record(context.WithoutCancel(ctx), c.event(sum, err))
	if recorded != nil {
		err = errors.Join(err, fmt.Errorf("record the operation: %w", recorded))
	}
	return res, err
}

// tally counts and hashes content.
type tally struct {
	hash  hash.Hash
	bytes int64
}

// Write implements io.Writer.
func (t *tally) Write(b []byte) (int, error) {
	t.bytes += int64(len(b))
	return t.hash.Write(b)
}

var recordedOps = map[channel.FileOp]audit.FileOp{
	channel.FileStat: audit.FileStat, channel.FileList: audit.FileList, channel.FileRead: audit.FileRead, channel.FileWrite: audit.FileWrite,
	channel.FileMkdir: audit.FileCreate, channel.FileRemove: audit.FileDelete, channel.FileMove: audit.FileRename,
}

// event returns the event of an operation that has ended.
func (c *FileCall) event(sum *tally, err error) audit.Event {
	f := &audit.File{Op: recordedOps[c.Op], Path: c.Path, To: c.To, Caller: c.Caller, Offset: c.Offset}
	if c.Op == channel.FileRead || c.Op == channel.FileWrite {
		f.Size, f.SHA256 = sum.bytes, hex.EncodeToString(sum.hash.Sum(nil))
	}
	if err != nil {
		f.Error = audit.Text(err.Error())
	}
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindFile, File: f}
}
