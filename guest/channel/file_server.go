package channel

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// FileStreams connect an operation on a file with the host.
type FileStreams struct {
	In  io.Reader // content to write
	Out io.Writer // content that is read
	// Complete returns nil when the host confirms that In, which was read to its end, is complete.
	Complete func() error
	// Describe sends the description of the file; for a read before the content.
	Describe func(FileInfo) error
	// List sends entries of a directory. more reports that there are others after all that were sent.
	List func(entries []FileInfo, more bool) error
	// Changes sends changes of a directory that is watched.
	Changes func([]FileChange) error
	// Left is closed when the host has left.
	Left <-chan struct{}
	// Abort makes the other fields return errors.
	Abort func()
}

var errHostLeft = errors.New("the host has ended the operation")

// file carries out one operation and reports its end.
func (s *Server) file(ctx context.Context, r *FileRequest, ctl, data net.Conn) {
	defer data.Close()
	if s.File == nil {
		writeFrame(ctl, fileReport{Error: &FileError{FileOther, r.Path, "the guest has no files"}, Done: true}, maxReport)
		return
	}
	h := newFileHost(ctl, data)
	defer context.AfterFunc(ctx, h.abort)()
	err := r.Check()
	if err == nil {
		err = s.File(ctx, *r, h.streams())
	}
	data.Close()
	writeFrame(ctl, fileReport{Error: fileErrorOf(r, err), Done: true}, maxReport)
	h.end()
}

func fileErrorOf(r *FileRequest, err error) *FileError {
	failed := (*FileError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		return failed
	}
	text := err.Error()
	return &FileError{FileOther, r.Path, text[:min(len(text), 1000)]}
}

// fileHost is the host during an operation.
type fileHost struct {
	ctl, data net.Conn
	complete  chan struct{} // closed when the host has confirmed the content
	left      chan struct{} // closed when the host has left
	listening sync.WaitGroup
}

func newFileHost(ctl, data net.Conn) *fileHost {
	h := &fileHost{ctl: ctl, data: data, complete: make(chan struct{}), left: make(chan struct{})}
	h.listening.Go(h.listen)
	return h
}

// listen reads the host's only message, and then waits until it leaves.
func (h *fileHost) listen() {
	defer unblock(h.data)
	defer close(h.left)
	var m fileControl
	if readFrame(h.ctl, &m, maxReport) != nil || !m.Complete {
		return
	}
	close(h.complete)
	readFrame(h.ctl, &m, maxReport)
}

func (h *fileHost) abort() {
	unblock(h.ctl)
	unblock(h.data)
}

// end waits for listen.
func (h *fileHost) end() {
	h.ctl.SetReadDeadline(past())
	h.listening.Wait()
}

func (h *fileHost) streams() FileStreams {
	return FileStreams{
		In: h.data, Out: h.data, Abort: h.abort,
		Complete: func() error {
			select {
			case <-h.complete:
				return nil
			case <-h.left:
				return errHostLeft
			}
		},
		Describe: func(i FileInfo) error { return writeFrame(h.ctl, fileReport{Info: &i}, maxReport) },
		List:     h.list, Changes: h.changes, Left: h.left,
	}
}

// list sends entries in reports that are not too long.
func (h *fileHost) list(entries []FileInfo, more bool) error {
	const fixed = 256 // bytes of an entry without its name and target
	from, size := 0, 0
	for i, e := range entries {
		next := 6*(len(e.Name)+len(e.Target)) + fixed // JSON makes at most six bytes out of one
		if size+next > maxReport-1024 && i > from {
			if err := writeFrame(h.ctl, fileReport{Entries: entries[from:i]}, maxReport); err != nil {
				return err
			}
			from, size = i, 0
		}
		size += next
	}
	return writeFrame(h.ctl, fileReport{Entries: entries[from:], More: more}, maxReport)
}
