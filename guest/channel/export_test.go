package channel

import (
	"io"
	"testing"
)

// Ends returns the two ends that a test copies with, for a directory to copy in and one to copy out to, each of which may be nil.
type Ends func(t testing.TB, in *SourceDir, out *DestinationDir) (Source, Destination)

// Transports are the ways in which tests reach directories. Another package, which this one cannot import, adds its own.
var Transports = map[string]Ends{
	"local": func(_ testing.TB, in *SourceDir, out *DestinationDir) (Source, Destination) { return in, out },
}

// overTransports runs a test with each of them.
func overTransports(t *testing.T, test func(t *testing.T, ends Ends)) {
	t.Helper()
	for name, ends := range Transports {
		t.Run(name, func(t *testing.T) { test(t, ends) })
	}
}

// assume has the client take a guest that answers nothing for one with an identity.
func (c *Client) assume() {
	c.identity.send("")
	c.identity.set(0)
}

// Unpack unpacks a stream as CopyOut does, with a limit, and returns the warnings.
func Unpack(t testing.TB, to Destination, data io.Reader, limit int64, o Out) ([]string, error) {
	t.Helper()
	must(t, to.Open(t.Context()))
	u := newUnpacker(to, nil, limit, o)
	err := u.unpack(t.Context(), data)
	must(t, to.Close())
	return u.warnings.all(), err
}

// from returns the source of a directory.
func (e Ends) from(t testing.TB, dir string) Source {
	in, _ := e(t, NewSourceDir(dir, nil), nil)
	return in
}

// to returns the destination of a directory that nothing guards.
func (e Ends) to(t testing.TB, dir string) Destination {
	_, out := e(t, nil, NewDestinationDir(dir, Protect{Limit: 1 << 30}))
	return out
}

// both returns the source and the destination of one directory.
func (e Ends) both(t testing.TB, dir string) (Source, Destination) {
	in := NewSourceDir(dir, nil)
	return e(t, in, NewDestinationDir(dir, Protect{From: in, Limit: 1 << 30}))
}
