package transfer

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
)

// TestRelay: a relay passes on results, of descriptors only pipes and only to the worker, and nothing after its end.
func TestRelay(t *testing.T) {
	pipe := func() *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		return r
	}
	device := func() *os.File {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	returns := func(result any, with func() []*os.File) privsep.Handler {
		return privsep.Handle(func(context.Context, emptyMessage) (any, []*os.File, error) { return result, with(), nil })
	}
	user := privseptest.Connect(t, map[string]privsep.Handler{
		callPack:   returns(emptyMessage{}, func() []*os.File { return []*os.File{pipe()} }),
		callPacked: returns(emptyMessage{}, func() []*os.File { return []*os.File{device()} }),
		callOpen:   returns(emptyMessage{}, func() []*os.File { return []*os.File{pipe(), pipe()} }),
		callLink:   returns(partResult{ID: 7, As: []byte("as")}, func() []*os.File { return nil }),
		callPlace:  privsep.Handle(func(context.Context, emptyMessage) (any, []*os.File, error) { return nil, nil, errNoOut }),
	})
	relay := NewRelay(user)
	worker := privseptest.Connect(t, relay.Handlers())
	files, err := worker.Call(t.Context(), callPack, emptyMessage{}, nil)
	if err != nil || len(files) != 1 {
		t.Errorf("%d files, %v", len(files), err)
	}
	closeAll(files)
	var part partResult
	if _, err := worker.Call(t.Context(), callLink, emptyMessage{}, &part); err != nil || part.ID != 7 || string(part.As) != "as" {
		t.Errorf("%+v, %v", part, err)
	}
	sent := device()
	defer sent.Close()
	for _, c := range []struct {
		call, want string
		with       []*os.File
	}{
		{callPacked, "is no pipe", nil},
		{callOpen, "has 2 descriptors", nil},
		{callPlace, errNoOut.Error(), nil},
		{callLink, errClosed.Error(), []*os.File{sent}},
	} {
		if _, err := worker.Call(t.Context(), c.call, emptyMessage{}, nil, c.with...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.call, err, c.want)
		}
	}
	if err := relay.Close(); err != nil {
		t.Error(err)
	}
	if _, err := worker.Call(t.Context(), callLink, emptyMessage{}, nil); err == nil || !strings.Contains(err.Error(), errClosed.Error()) {
		t.Errorf("after the end: %v", err)
	}
}
