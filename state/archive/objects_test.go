package archive_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/custody-project/custody/state/archive"
)

func read(t *testing.T, o archive.Objects, name string) string {
	t.Helper()
	r, size, err := o.Get(t.Context(), name)
	must(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	must(t, err)
	if int64(len(b)) != size {
		t.Errorf("%s has %d bytes, and its size is %d", name, len(b), size)
	}
	return string(b)
}

func list(t *testing.T, o archive.Objects, prefix string) (names []string) {
	t.Helper()
	must(t, o.List(t.Context(), prefix, func(o archive.Object) error {
		names = append(names, o.Name)
		return nil
	}))
	return names
}

// TestObjects: what both storages promise.
func TestObjects(t *testing.T) {
	storages(t, func(t *testing.T, o archive.Objects) {
		const name, large = "tenant-acme/r-1.snapshot", 40 << 20
		if _, _, err := o.Get(t.Context(), name); !errors.Is(err, archive.ErrNotFound) {
			t.Errorf("get of nothing: %v", err)
		}
		if _, err := o.Stat(t.Context(), name); !errors.Is(err, archive.ErrNotFound) {
			t.Errorf("stat of nothing: %v", err)
		}
		must(t, o.Delete(t.Context(), name))
		must(t, o.Put(t.Context(), name, iotest.HalfReader(strings.NewReader("first"))))
		if err := o.Put(t.Context(), name, strings.NewReader("second")); !errors.Is(err, archive.ErrExists) {
			t.Errorf("a second put: %v", err)
		}
		must(t, o.Put(t.Context(), "tenant-acme/r-10.snapshot", strings.NewReader(strings.Repeat("x", large)))) // several parts
		must(t, o.Put(t.Context(), "tenant-acme2/r-1.snapshot", strings.NewReader("")))
		if read(t, o, name) != "first" || len(read(t, o, "tenant-acme/r-10.snapshot")) != large || read(t, o, "tenant-acme2/r-1.snapshot") != "" {
			t.Error("an object has other contents")
		}
		info, err := o.Stat(t.Context(), name)
		if err != nil || info.Name != name || info.Size != 5 || time.Since(info.Stored).Abs() > time.Minute {
			t.Errorf("%+v, %v", info, err)
		}
		if got := list(t, o, "tenant-acme/"); !slices.Equal(got, []string{name, "tenant-acme/r-10.snapshot"}) {
			t.Errorf("the objects of a tenant are %q", got)
		}
		if got, err := o.Rest(t.Context(), name); err != nil || len(got) != 1 {
			t.Errorf("before the deletion there are %q, %v", got, err)
		}
		must(t, o.Delete(t.Context(), name))
		if got, err := o.Rest(t.Context(), name); err != nil || len(got) != 0 {
			t.Errorf("after the deletion there are %q, %v", got, err)
		}
		must(t, o.Put(t.Context(), name, strings.NewReader("third")))

		broken := errors.New("broken")
		reader := io.MultiReader(strings.NewReader(strings.Repeat("x", large)), iotest.ErrReader(broken))
		if err := o.Put(t.Context(), "tenant-acme/r-2.snapshot", reader); !errors.Is(err, broken) {
			t.Errorf("a put of a broken reader: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := o.Put(ended, "tenant-acme/r-2.snapshot", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
			t.Errorf("a put with a context that has ended: %v", err)
		}
		if got, err := o.Rest(t.Context(), "tenant-acme/r-2.snapshot"); err != nil || len(got) > 0 {
			t.Errorf("failed puts left %q, %v", got, err)
		}
	})
}

// TestOneWins: of concurrent puts one succeeds, and the object is its.
func TestOneWins(t *testing.T) {
	storages(t, func(t *testing.T, o archive.Objects) {
		var won atomic.Value
		var wins, others atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				text := strings.Repeat(string(rune('a'+i)), 1<<20)
				switch err := o.Put(t.Context(), "tenant-/r-1.snapshot", strings.NewReader(text)); {
				case err == nil:
					won.Store(text)
					wins.Add(1)
				case errors.Is(err, archive.ErrExists):
					others.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if wins.Load() != 1 || others.Load() != 7 || read(t, o, "tenant-/r-1.snapshot") != won.Load() {
			t.Errorf("%d puts have succeeded, %d found the name in use", wins.Load(), others.Load())
		}
	})
}

// TestNames: no name leaves the prefix of its tenant, and different runs have different names.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, tenant := range []string{"", ".", "..", "acme", "acme2", "a-b"} {
		for _, run := range []string{"r-1", "r-1.snapshot", "r-01kaaaaaaaaaaaaaaaaaaaaaaa"} {
			name, err := archive.Name(tenant, run)
			if err != nil || seen[name] || name != "tenant-"+tenant+"/"+run+".snapshot" {
				t.Errorf("%q of %q: %q, %v", run, tenant, name, err)
			}
			seen[name] = true
		}
	}
	for _, c := range [][2]string{{"a/b", "r-1"}, {"a\n", "r-1"}, {"ü", "r-1"}, {strings.Repeat("a", 65), "r-1"}, {"acme", ""}, {"acme", "../r-1"}, {"acme", ".r"}, {"acme", "r/1"}, {"acme", "r*"}} {
		if name, err := archive.Name(c[0], c[1]); err == nil {
			t.Errorf("%q has the name %q", c, name)
		}
	}
	storages(t, func(t *testing.T, o archive.Objects) {
		if _, ok := o.(interface{ Close() error }); ok {
			return // names have no meaning in a bucket
		}
		for _, name := range []string{"../x", "/x", "a/../x", "", ".", ".part-x", "a/.x", "a//b", "a*"} {
			if err := o.Put(t.Context(), name, strings.NewReader("")); err == nil {
				t.Errorf("%q was written", name)
			}
		}
	})
}

// TestTLSAndCredentials: without the right authority, secret or bucket an archive does not open, and no error contains the secret.
func TestTLSAndCredentials(t *testing.T) {
	s := start(t, true)
	for _, name := range []string{"authority", "secret", "bucket", "no secret", ""} {
		o := s.options()
		o.Retries = 1
		switch name {
		case "authority":
			o.TLS = o.TLS.Clone()
			o.TLS.RootCAs = nil
		case "secret":
			o.Secret = func() (string, error) { return "another-" + secret, nil }
		case "bucket":
			o.Bucket = "else"
		case "no secret":
			o.Secret = func() (string, error) { return "", errors.New("the file is missing") }
		}
		_, err := archive.Open(t.Context(), newBucket(t, o), archive.Config{Keys: key(t)})
		if (err == nil) != (name == "") || errors.Is(err, archive.ErrUnsafe) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the secret is in %q", name, err)
		}
	}
}
