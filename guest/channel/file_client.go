package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// FileTransfer is what an operation on a file reads and writes.
type FileTransfer struct {
	// In is the content to write. An error other than io.EOF means that it is not complete: nothing is written then.
	In io.Reader
	// Out receives the content that is read.
	Out io.Writer
	// Entry is called with each entry of a directory.
	Entry func(FileInfo) error
	// Change is called with each change of a directory that is watched.
	Change func(FileChange) error
	// Packed is called with each entry of an archive that has passed. It may be nil.
	Packed func(Packed) error
}

// FileResult is what an operation on a file returned.
type FileResult struct {
	Info FileInfo // of the file; not after remove
	More bool     // list: there are entries after the last one
}

// File carries out an operation on a file of the session. An error can be a FileError.
func (c *Client) File(ctx context.Context, r FileRequest, t FileTransfer) (FileResult, error) {
	if !c.identity.known() {
		return FileResult{}, fmt.Errorf("%s a file: %w", r.Op, ErrAnonymous)
	}
	if err := r.Check(); err != nil {
		return FileResult{}, err
	}
	streams, err := c.open(ctx, hello{Kind: streamFile, File: &r}, 1)
	if err != nil {
		return FileResult{}, fmt.Errorf("%s a file: %w", r.Op, err)
	}
	defer closeStreams(ctx, streams)()
	f := &fileCall{request: &r, transfer: t, ctl: streams[0], data: streams[1]}
	res, err := f.carryOut()
	if failed := (*FileError)(nil); errors.As(err, &failed) {
		return res, failed
	}
	if mine := (*localError)(nil); errors.As(err, &mine) && ctx.Err() == nil {
		return res, mine.err
	}
	if err != nil {
		return res, c.failed(ctx, string(r.Op)+" a file", err)
	}
	return res, nil
}

// fileCall is one operation, at the host's end.
type fileCall struct {
	request  *FileRequest
	transfer FileTransfer
	ctl      net.Conn
	data     net.Conn
	listed   int
	watching bool     // a change was reported
	last     FileInfo // of the entries
	result   FileResult
}

// localError is an error of the caller's reader or writer.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }

func (f *fileCall) carryOut() (FileResult, error) {
	switch f.request.Op {
	case FileWrite, FileUnpack:
		return f.result, f.write()
	case FilePack:
		return f.result, f.pack()
	case FileRead:
		if err := f.read(); err != nil {
			return f.result, err
		}
	}
	return f.result, f.listen()
}

// write sends the content while it waits for the guest's answer, which comes early if the guest cannot write it.
func (f *fileCall) write() error {
	answered := make(chan error, 1)
	go func() {
		answered <- f.listen()
		unblock(f.data)
	}()
	err := f.send(justWriter{f.data})
	mine := (*localError)(nil)
	complete := err == nil
	if complete {
		f.data.Close()
		_ = writeFrame(f.ctl, fileControl{Complete: true}, maxReport) // if it fails, there is no answer
	} else if errors.As(err, &mine) {
		f.data.Close()
		f.ctl.Close() // the guest drops what it has; its answer is read below
	}
	answer := <-answered
	switch {
	case mine != nil:
		return mine
	case answer != nil:
		return answer
	case !complete: // it has reported success before it had everything
		return hostile("a file was written before its content was complete")
	}
	return nil
}

// send sends the content, or the archive.
func (f *fileCall) send(to io.Writer) error {
	if f.request.Op == FileUnpack {
		return f.unpack(to)
	}
	_, err := io.Copy(to, localReader{f.transfer.In})
	return err
}

// read reads the content up to its end.
func (f *fileCall) read() error {
	var r fileReport
	if err := readFrame(f.ctl, &r, maxReport); err != nil {
		return err
	}
	if done, err := f.take(&r); err != nil || done {
		return errors.Join(err, early(done))
	}
	size := max(0, f.result.Info.Size-f.request.Offset)
	if f.request.Limit > 0 {
		size = min(size, f.request.Limit)
	}
	n, err := io.Copy(localWriter{f.transfer.Out}, io.LimitReader(f.data, size+1))
	if err == nil && n > size {
		err = hostile("content of %d bytes is longer than announced", n)
	}
	return err
}

func early(done bool) error {
	if done {
		return hostile("end of an operation without its content")
	}
	return nil
}

// listen reads messages up to the last one.
func (f *fileCall) listen() error {
	for {
		var r fileReport
		if err := readFrame(f.ctl, &r, maxReport); err != nil {
			return err
		}
		if done, err := f.take(&r); err != nil || done {
			return err
		}
	}
}

// take takes a message of the guest, and reports whether it is the last.
func (f *fileCall) take(r *fileReport) (done bool, err error) {
	if r.Error != nil {
		if err := r.Error.check(f.request); err != nil {
			return true, err
		}
		return true, r.Error
	}
	if r.Info != nil {
		if err := r.Info.check(); err != nil {
			return true, err
		}
		f.result.Info = *r.Info
	}
	if err := f.change(r.Changes); err != nil {
		return true, err
	}
	f.result.More = f.result.More || r.More
	if len(r.Entries) > 0 && f.request.Op != FileList {
		return true, hostile("entries of a directory that was not listed")
	}
	for _, e := range r.Entries {
		if err := e.check(); err != nil {
			return true, err
		}
		if f.listed++; f.listed > f.request.Max || e.Name <= max(f.last.Name, f.request.After) {
			return true, hostile("entry %.300q of a directory is one too many, or not in order", e.Name)
		}
		f.last = e
		if err := f.transfer.Entry(e); err != nil {
			return true, &localError{err}
		}
	}
	return r.Done, nil
}

// justWriter hides that a stream can read from another, which would lose whose error it was.
type justWriter struct{ io.Writer }

type localReader struct{ io.Reader }

func (r localReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &localError{err}
	}
	return n, err
}

type localWriter struct{ io.Writer }

func (w localWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		err = &localError{err}
	}
	return n, err
}
