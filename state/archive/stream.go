package archive

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/custody-project/custody/state"
)

// upload is the contents of an object, which a goroutine writes while they are read: the export, then its digest.
type upload struct {
	*io.PipeReader
	done chan struct{} // closed when the goroutine has ended; it sets the fields below
	info state.Info
	sum  hash.Hash // of the object
	n    int64
	err  error // of the export
}

var errUnread = errors.New("the storage does not read the object")

// startUpload starts to write an object. The caller calls end.
func startUpload(export func(io.Writer) (state.Info, error)) *upload {
	r, w := io.Pipe()
	up := &upload{PipeReader: r, done: make(chan struct{}), sum: sha256.New()}
	go func() {
		defer close(up.done)
		content := sha256.New()
		object := io.MultiWriter(w, up.sum, (*length)(&up.n))
		up.info, up.err = export(io.MultiWriter(object, content))
		if up.err == nil {
			_, up.err = object.Write(content.Sum(nil))
		}
		w.CloseWithError(up.err)
	}()
	return up
}

// end waits until the goroutine has ended. put is the error of the storage, which explains that of an export whose reader has ended.
func (up *upload) end(put error) (info state.Info, n int64, sum string) {
	up.CloseWithError(errUnread)
	<-up.done
	if put != nil && errors.Is(up.err, errUnread) {
		up.err = nil
	}
	return up.info, up.n, fmt.Sprintf("%x", up.sum.Sum(nil))
}

// length counts what is written.
type length int64

// Write implements io.Writer.
func (n *length) Write(p []byte) (int, error) {
	*n += length(len(p))
	return len(p), nil
}

// checked reads the export in an object. It ends with io.EOF only if the digest behind it matches.
type checked struct {
	object  io.Reader
	content io.Reader // the part of object that is the export
	sum     hash.Hash
	err     error // io.EOF, or ErrDamaged, when the end has been checked
}

func newChecked(object io.Reader, size int64) *checked {
	c := &checked{object: object, sum: sha256.New()}
	c.content = io.TeeReader(io.LimitReader(object, size), c.sum)
	return c
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.content.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		c.err = c.finish()
		err = c.err
	case err != nil:
		err = damaged(err)
	}
	return n, err
}

// finish compares the digest.
func (c *checked) finish() error {
	var want [sha256.Size + 1]byte
	n, err := io.ReadFull(c.object, want[:])
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return ErrDamaged
	case !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case n != sha256.Size || [sha256.Size]byte(c.sum.Sum(nil)) != [sha256.Size]byte(want[:n]):
		return ErrDamaged
	}
	return io.EOF
}

// damaged returns ErrDamaged for the end of a connection before that of the object.
func damaged(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	return err
}
