package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
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
// that was written or read, not the content, which is not redacted. Each entry of an archive has an event of its own, before that of the archive.
func (s *Sandbox) File(ctx context.Context, c FileCall, t channel.FileTransfer) (channel.FileResult, error) {
	if err := s.holds.wait(ctx); err != nil {
		return channel.FileResult{}, err
	}
	if c.Op == channel.FileWatch {
		return c.watch(ctx, s, t)
	}
	sum := &tally{hash: sha256.New()}
	if t.In != nil {
		t.In = io.TeeReader(t.In, sum)
	}
	if t.Out != nil {
		t.Out = io.MultiWriter(sum, t.Out)
	}
	t.Packed = func(e channel.Packed) error {
		_, err := s.parts.Recorder.Post(ctx, c.packed(e))
		return err
	}
	res, err := s.warm.guest().File(ctx, c.FileRequest, t)
	_, recorded := s.parts.Recorder.Record(context.WithoutCancel(ctx), c.event(sum, err))
	if recorded != nil {
		err = errors.Join(err, fmt.Errorf("record the operation: %w", recorded))
	}
	return res, err
}

// watch watches a directory, and records the operation when it has begun or failed.
func (c *FileCall) watch(ctx context.Context, s *Sandbox, t channel.FileTransfer) (channel.FileResult, error) {
	begun, each := false, t.Change
	record := func(err error) error {
		begun = true
		if _, recorded := s.parts.Recorder.Record(context.WithoutCancel(ctx), c.event(nil, err)); recorded != nil {
			return fmt.Errorf("record the operation: %w", recorded)
		}
		return nil
	}
	t.Change = func(ch channel.FileChange) error {
		if !begun {
			if err := record(nil); err != nil {
				return err
			}
		}
		return each(ch)
	}
	res, err := s.warm.guest().File(ctx, c.FileRequest, t)
	if !begun {
		err = errors.Join(err, record(err))
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
	channel.FilePack: audit.FilePack, channel.FileUnpack: audit.FileUnpack, channel.FileWatch: audit.FileWatch,
}

// event returns the event of an operation that has ended.
func (c *FileCall) event(sum *tally, err error) audit.Event {
	f := &audit.File{Op: recordedOps[c.Op], Path: c.Path, To: c.To, Caller: c.Caller, Offset: c.Offset}
	switch c.Op {
	case channel.FileRead, channel.FileWrite, channel.FilePack, channel.FileUnpack:
		f.Size, f.SHA256 = sum.bytes, hex.EncodeToString(sum.hash.Sum(nil))
	}
	if err != nil {
		f.Error = audit.Text(err.Error())
	}
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindFile, File: f}
}

// packed returns the event of an entry of an archive: what the caller would have done with it alone.
func (c *FileCall) packed(e channel.Packed) audit.Event {
	f := &audit.File{Path: audit.Text(path.Join(string(c.Path), string(e.Name))), Caller: c.Caller, Size: e.Size, SHA256: e.SHA256}
	switch unpack := c.Op == channel.FileUnpack; {
	case unpack && e.Type == channel.TypeFile:
		f.Op = audit.FileWrite
	case unpack:
		f.Op = audit.FileCreate
	case e.Type == channel.TypeFile:
		f.Op = audit.FileRead
	default:
		f.Op = audit.FileStat
	}
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindFile, File: f}
}
