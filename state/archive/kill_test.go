package archive_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/state/archive"
	"github.com/custody-project/custody/state/archive/dir"
)

// killing is a storage that kills the process.
type killing struct {
	archive.Objects
	point string
}

// at kills the process as kill -9 does.
func (k killing) at(point string) {
	if point == k.point {
		unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
}

func (k killing) Put(ctx context.Context, name string, r io.Reader) error {
	if strings.HasPrefix(name, "tenant-") {
		r = io.MultiReader(r, killer{k, "uploaded"})
		k.at("put")
		r = &after{r, 34 << 20, func() { k.at("part") }}
	}
	err := k.Objects.Put(ctx, name, r)
	if strings.HasPrefix(name, "tenant-") {
		k.at("stored")
	}
	return err
}

func (k killing) Get(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	r, n, err := k.Objects.Get(ctx, name)
	if err == nil && strings.HasPrefix(name, "tenant-") {
		r = struct {
			io.Reader
			io.Closer
		}{&after{io.MultiReader(r, killer{k, "fetched"}), 34 << 20, func() { k.at("fetch") }}, r}
	}
	return r, n, err
}

// killer kills the process when it is read.
type killer struct {
	killing
	where string
}

func (k killer) Read([]byte) (int, error) {
	k.at(k.where)
	return 0, io.EOF
}

// after calls f when n bytes were read.
type after struct {
	io.Reader
	n int
	f func()
}

func (a *after) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if a.n -= n; a.n < 0 {
		a.f()
	}
	return n, err
}

// objects opens the storage that a text describes.
func objects(t testing.TB, where string) archive.Objects {
	t.Helper()
	if addr, found := strings.CutPrefix(where, "s3:"); found {
		s := &server{addr: addr}
		return s.bucket(t)
	}
	d, err := dir.New(where)
	must(t, err)
	return d
}

// TestChild is the child process of TestKill.
func TestChild(t *testing.T) {
	point, home := os.Getenv("ARCHIVE_TEST_CHILD"), os.Getenv("ARCHIVE_TEST_HOME")
	if point == "" {
		t.Skip("it is no test of its own: TestKill executes it in a process that it kills, with ARCHIVE_TEST_CHILD set")
	}
	o := killing{objects(t, os.Getenv("ARCHIVE_TEST_STORAGE")), point}
	a, h := open(t, o, state.SharedKeyFile(filepath.Join(home, "archive.key"))), openHost(t, "host-1", home)
	if strings.HasPrefix(point, "fetch") {
		_, err := a.Fetch(t.Context(), h.Store, binding, h.name)
		must(t, err)
		return
	}
	base, err := os.Open(filepath.Join(home, "base"))
	must(t, err)
	_, err = h.archive(t, a, map[string]*os.File{"memory": base})
	must(t, err)
}

// TestKill kills a process at points of an upload and a download. The archive then has the sandbox completely or not at all, the next start removes the rest, and what the
// process was doing succeeds.
func TestKill(t *testing.T) {
	for _, storage := range []string{"dir", "s3"} {
		for _, point := range []string{"put", "part", "uploaded", "stored", "fetch", "fetched"} {
			t.Run(storage+" "+point, func(t *testing.T) {
				home, where := t.TempDir(), filepath.Join(t.TempDir(), "archive")
				if storage == "s3" {
					where = "s3:" + start(t, false).addr
				}
				o, k := objects(t, where), state.SharedKeyFile(filepath.Join(home, "archive.key"))
				must(t, k.Create())
				a, h := open(t, o, k), openHost(t, "host-1", home)
				content := strings.Repeat(large(7), 12)
				bases := h.pause(t, content)
				fetch := strings.HasPrefix(point, "fetch")
				if fetch {
					_, err := h.archive(t, a, bases)
					must(t, err)
				}
				b, err := os.ReadFile(bases["memory"].Name())
				must(t, err)
				must(t, os.WriteFile(filepath.Join(home, "base"), b, 0o600))
				child := exec.Command(os.Args[0], "-test.run=^TestChild$")
				child.Env = append(os.Environ(), "ARCHIVE_TEST_CHILD="+point, "ARCHIVE_TEST_HOME="+home, "ARCHIVE_TEST_STORAGE="+where)
				if out, err := child.CombinedOutput(); child.ProcessState.Success() || child.ProcessState.ExitCode() >= 0 {
					t.Fatalf("the child was not killed: %v\n%s", err, out)
				}
				want := 0
				if fetch || point == "stored" {
					want = 1
				}
				if items, err := a.List(t.Context(), "acme"); err != nil || len(items) != want {
					t.Errorf("the archive has %+v, %v", items, err)
				}
				a, err = archive.Open(t.Context(), o, archive.Config{Keys: k, Group: "eu", Abandoned: time.Nanosecond, Now: func() time.Time { return time.Now().Add(time.Minute) }})
				must(t, err)
				name, err := archive.Name("acme", binding.Run)
				must(t, err)
				if rest, err := o.Rest(t.Context(), name); err != nil || len(rest) != want {
					t.Errorf("after the next start there are %q, %v", rest, err)
				}
				h = openHost(t, "host-1", home)
				if got := h.names(t); fetch && len(got) > 0 || !fetch && len(got) != 1 {
					t.Errorf("host-1 has %q", got)
				}
				if !fetch {
					_, err = h.archive(t, a, bases)
					must(t, err)
				}
				_, err = a.Fetch(t.Context(), h.Store, binding, h.name)
				must(t, err)
				if _, d := h.resume(t); d != content {
					t.Error("the device differs")
				}
			})
		}
	}
}

// FuzzFetch fetches objects of arbitrary bytes. None is accepted, and none leaves anything.
func FuzzFetch(f *testing.F) {
	root := f.TempDir()
	d, err := dir.New(filepath.Join(root, "archive"))
	must(f, err)
	h := openHost(f, "host-1", root)
	a := open(f, d, key(f))
	_, err = h.archive(f, a, h.pause(f, "text"))
	must(f, err)
	path := filepath.Join(string(d), "tenant-acme", binding.Run+".snapshot")
	valid, err := os.ReadFile(path)
	must(f, err)
	f.Add([]byte{})
	f.Add(valid[:len(valid)-1])
	f.Add(append([]byte("custody snapshot 1\n"), valid...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if string(b) == string(valid) {
			return
		}
		must(t, os.WriteFile(path, b, 0o600))
		if _, err := a.Fetch(t.Context(), h.Store, binding, h.name); err == nil {
			t.Error("it was accepted")
		}
		a.Stat(t.Context(), "acme", binding.Run)
		if got := h.names(t); len(got) > 0 {
			t.Errorf("there are %q", got)
		}
	})
}
