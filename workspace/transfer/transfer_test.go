package transfer

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/workspace"
)

func TestMain(m *testing.M) { privseptest.Main(m, work) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scene is a directory to copy out to, in a directory that must not change.
type scene struct {
	base, out string
	before    map[string]string // of base without out
}

func newScene(t testing.TB) *scene {
	t.Helper()
	s := &scene{base: t.TempDir()}
	s.out = filepath.Join(s.base, "out")
	must(t, os.MkdirAll(filepath.Join(s.base, "outside"), 0o755))
	must(t, os.WriteFile(filepath.Join(s.base, "outside", "victim"), []byte("safe"), 0o644))
	must(t, os.MkdirAll(filepath.Join(s.out, "dir"), 0o755))
	must(t, os.WriteFile(filepath.Join(s.out, "file"), []byte("mine"), 0o644))
	must(t, os.Symlink("../outside", filepath.Join(s.out, "owner")))
	s.before = s.outside(t)
	return s
}

// destination returns the Destination of out, with the guard of a run.
func (s *scene) destination(t testing.TB, limit int64) *channel.DestinationDir {
	t.Helper()
	g, err := workspace.NewGuard(s.out, workspace.GuardOptions{})
	must(t, err)
	return channel.NewDestinationDir(s.out, channel.Protect{Guard: g, Limit: limit})
}

// list returns what is in a directory, by a plain walk.
func list(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if d.Type().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += " " + string(b)
		}
		name, _ := filepath.Rel(dir, p)
		all[name] = text
		return nil
	}))
	return all
}

func (s *scene) outside(t testing.TB) map[string]string {
	t.Helper()
	all := list(t, s.base)
	for name := range all {
		if strings.HasPrefix(name, "out/") {
			delete(all, name)
		}
	}
	return all
}

// check fails the test if something outside was touched, or a part is left.
func (s *scene) check(t testing.TB) {
	t.Helper()
	if now := s.outside(t); fmt.Sprint(now) != fmt.Sprint(s.before) {
		t.Errorf("outside there is %v, there was %v", now, s.before)
	}
	if left := s.parts(t); len(left) > 0 {
		t.Errorf("parts are left: %q", left)
	}
}

func (s *scene) parts(t testing.TB) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(s.out, func(p string, d fs.DirEntry, err error) error {
		if strings.HasPrefix(d.Name(), ".custody-") {
			names = append(names, p)
		}
		return err
	}))
	return names
}

// connect returns a Client of a Server, over a socket pair, and the connection of the Client.
func connect(t testing.TB, s *Server) (*Client, *privsep.Conn) {
	t.Helper()
	here, there, err := privsep.Pair()
	must(t, err)
	other, err := privsep.Socket(there)
	must(t, err)
	server, client := privsep.New(here, s.Handlers()), privsep.New(other, nil)
	ended := make(chan error, 2)
	go func() { ended <- server.Run(context.Background()) }()
	go func() { ended <- client.Run(context.Background()) }()
	t.Cleanup(func() {
		client.Close()
		for range 2 {
			must(t, <-ended)
		}
		must(t, s.Close())
	})
	return NewClient(client), client
}

// put makes a file as a part, with the content in one piece.
func put(c *Client, name, content string, mode fs.FileMode) (channel.Part, error) {
	p, err := c.File(context.Background(), name, channel.Attributes{Mode: mode, Size: int64(len(content)), Time: time.Unix(1e9, 0)})
	if err != nil || p.ID == 0 {
		return p, err
	}
	if _, err := io.WriteString(p.Content, content); err != nil {
		return p, err
	}
	return p, p.Content.Close()
}

// relay copies everything from the source to the destination, as a worker does by way of the guest.
func relay(ctx context.Context, c *Client) (warnings []string, err error) {
	if err := c.Open(ctx); err != nil {
		return nil, err
	}
	var waiting []channel.PartID
	place := func() error {
		_, err := c.Place(ctx, waiting)
		waiting = nil
		return err
	}
	warnings, err = c.Send(ctx, func(h *tar.Header, content io.Reader) error {
		var p channel.Part
		var err error
		switch name := strings.TrimSuffix(h.Name, "/"); h.Typeflag {
		case tar.TypeDir:
			_, _, err = c.Directory(ctx, name, fs.FileMode(h.Mode))
		case tar.TypeSymlink:
			p, err = c.Link(ctx, name, h.Linkname)
		case tar.TypeReg:
			if p, err = c.File(ctx, name, channel.Attributes{Mode: fs.FileMode(h.Mode), Size: h.Size, Time: h.ModTime}); err == nil && p.ID != 0 {
				if _, err = io.CopyN(p.Content, content, h.Size); err == nil {
					err = p.Content.Close()
				}
			}
		}
		if p.ID != 0 {
			waiting = append(waiting, p.ID)
		}
		if err == nil && len(waiting) == 256 {
			err = place()
		}
		return err
	})
	if err == nil {
		err = place()
	}
	if err != nil {
		return warnings, err
	}
	return warnings, c.Close()
}

// work is the worker of the tests.
func work() error {
	conn, _, err := privsep.Enter(nil, 0)
	if err != nil {
		return err
	}
	ctx := context.Background()
	ran := make(chan error, 1)
	go func() { ran <- conn.Run(ctx) }()
	c := NewClient(conn)
	switch privseptest.Mode() {
	case "relay":
		_, err = relay(ctx, c)
	case "hang":
		err = hang(ctx, c)
	}
	if err != nil {
		return err
	}
	if _, err := conn.Call(ctx, "done", emptyMessage{}, nil); err != nil {
		return err
	}
	return <-ran
}

// hang leaves a placed file, complete parts, one that is half written, and a link without its name.
func hang(ctx context.Context, c *Client) error {
	if err := c.Open(ctx); err != nil {
		return err
	}
	placed, err := put(c, "placed", "p", 0o644)
	if err != nil {
		return err
	}
	if _, err := c.Place(ctx, []channel.PartID{placed.ID}); err != nil {
		return err
	}
	for i := range 20 {
		if _, err := put(c, fmt.Sprint(i), "x", 0o644); err != nil {
			return err
		}
	}
	if _, err := c.Link(ctx, "link", "file"); err != nil {
		return err
	}
	p, err := c.File(ctx, "half", channel.Attributes{Size: 10})
	if err != nil {
		return err
	}
	_, err = io.WriteString(p.Content, "12345")
	return err
}

// TestWorker: a worker, whose root directory does not contain the directories, copies a tree in and out.
func TestWorker(t *testing.T) {
	in := t.TempDir()
	for i := range 600 {
		must(t, os.MkdirAll(filepath.Join(in, fmt.Sprintf("d%d", i%7)), 0o755))
		must(t, os.WriteFile(filepath.Join(in, fmt.Sprintf("d%d/%d", i%7, i)), []byte(strings.Repeat("x", i*i)), 0o640))
	}
	must(t, os.WriteFile(filepath.Join(in, "n\xff"), nil, 0o777))
	must(t, os.WriteFile(filepath.Join(in, "shared"), nil, 0o644))
	must(t, os.Chmod(filepath.Join(in, "shared"), 0o666))
	must(t, os.Symlink("shared", filepath.Join(in, "link")))
	from, out := channel.NewSourceDir(in, nil), t.TempDir()
	s := NewServer(from, channel.NewDestinationDir(out, channel.Protect{From: from, Limit: 1 << 30}))
	startWorker(t, "relay", s)
	must(t, s.Close())
	want, got := list(t, in), list(t, out)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%q: got %.60q, want %.60q", name, got[name], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
}

// startWorker starts a worker, and returns it when it is done.
func startWorker(t *testing.T, mode string, s *Server) *privsep.Process {
	t.Helper()
	done := make(chan struct{})
	handlers := s.Handlers()
	handlers["done"] = privsep.Handle(func(context.Context, emptyMessage) (any, []*os.File, error) {
		close(done)
		return emptyMessage{}, nil, nil
	})
	p := privseptest.Start(t, privseptest.Worker(mode), handlers)
	select {
	case <-done:
	case <-p.Done():
		t.Fatal("the worker failed")
	}
	return p
}

// TestWorkerKilled: after kill -9 of the worker no part is left.
func TestWorkerKilled(t *testing.T) {
	sc := newScene(t)
	s := NewServer(nil, sc.destination(t, 1<<20))
	p := startWorker(t, "hang", s)
	if n := len(sc.parts(t)); n != 22 {
		t.Errorf("%d parts before, want 22", n)
	}
	must(t, p.Close()) // kills it
	must(t, s.Close())
	sc.check(t)
	if b, err := os.ReadFile(filepath.Join(sc.out, "placed")); err != nil || string(b) != "p" {
		t.Errorf("the placed file: %q, %v", b, err)
	}
}

// TestConnectionEnds: the parts go with the connection, also if the Server is not closed.
func TestConnectionEnds(t *testing.T) {
	sc := newScene(t)
	c, conn := connect(t, NewServer(nil, sc.destination(t, 1<<20)))
	must(t, hang(t.Context(), c))
	conn.Close()
	for len(sc.parts(t)) > 0 {
		time.Sleep(time.Millisecond)
	}
	sc.check(t)
}

// TestPackingFails: why a directory could not be read comes to the other end, and a failure there ends packing.
func TestPackingFails(t *testing.T) {
	in := t.TempDir()
	big := filepath.Join(in, "big")
	must(t, os.WriteFile(big, nil, 0o644))
	must(t, os.Truncate(big, 64<<20))
	c, _ := connect(t, NewServer(channel.NewSourceDir(in, nil), nil))
	_, err := c.Send(t.Context(), func(h *tar.Header, content io.Reader) error {
		must(t, os.Truncate(big, 1<<20))
		_, err := io.CopyN(io.Discard, content, h.Size)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "shrank from 67108864") {
		t.Errorf("a file that shrank: %v", err)
	}
	if _, err := c.Send(t.Context(), nil); err == nil || !strings.Contains(err.Error(), errPacked.Error()) {
		t.Errorf("packed twice: %v", err)
	}
	must(t, os.Truncate(big, 64<<20))
	c, _ = connect(t, NewServer(channel.NewSourceDir(in, nil), nil))
	full := syscall.ENOSPC
	if _, err := c.Send(t.Context(), func(*tar.Header, io.Reader) error { return full }); err != full {
		t.Errorf("a guest that is full: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, _ = connect(t, NewServer(channel.NewSourceDir(in, nil), nil))
	if _, err := c.Send(ctx, func(*tar.Header, io.Reader) error { cancel(); return nil }); err == nil {
		t.Error("a copy whose context ended succeeded")
	}
}

// TestManyWarnings: all warnings arrive, though they are more than a message holds.
func TestManyWarnings(t *testing.T) {
	in := t.TempDir()
	for i := range 1100 {
		must(t, syscall.Mkfifo(filepath.Join(in, strings.Repeat("\xff", 200)+fmt.Sprint(i)), 0o600))
	}
	want, err := channel.NewSourceDir(in, nil).Pack(t.Context(), io.Discard)
	must(t, err)
	c, _ := connect(t, NewServer(channel.NewSourceDir(in, nil), nil))
	got, err := c.Send(t.Context(), func(*tar.Header, io.Reader) error { return nil })
	must(t, err)
	if len(want) != 1001 || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("%d warnings, want %d", len(got), len(want))
	}
}

// BenchmarkFiles copies 100 files of 4 KiB in and out.
func BenchmarkFiles(b *testing.B) {
	in := b.TempDir()
	for i := range 100 {
		must(b, os.WriteFile(filepath.Join(in, fmt.Sprint(i)), make([]byte, 4096), 0o644))
	}
	for b.Loop() {
		c, _ := connect(b, NewServer(channel.NewSourceDir(in, nil), channel.NewDestinationDir(b.TempDir(), channel.Protect{Limit: 1 << 30})))
		_, err := relay(b.Context(), c)
		must(b, err)
	}
}
