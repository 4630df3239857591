package proof_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/wal"
)

func bundle(t testing.TB, dir string, k key) []byte {
	t.Helper()
	var b bytes.Buffer
	check(t, proof.WriteBundle(t.Context(), &b, dir, proof.BundleOptions{HostKey: k.public}))
	return b.Bytes()
}

func openBytes(t testing.TB, data []byte) (*proof.Evidence, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle.zip")
	check(t, os.WriteFile(path, data, 0o600))
	return proof.OpenBundle(path)
}

func TestBundle(t *testing.T) {
	k := newKey(t)
	dir := newRun(t, k, "r-one")
	check(t, os.WriteFile(filepath.Join(dir, "shipped"), nil, 0o600))
	data := bundle(t, dir, k)
	if !bytes.Equal(data, bundle(t, clone(t, dir), k)) {
		t.Error("the same record gives different bundles")
	}
	e, err := openBytes(t, data)
	check(t, err)
	defer e.Close()
	report, err := proof.Verify(context.Background(), e, proof.Trust{Keys: k.trusted, Unlogged: true})
	check(t, err)
	want, err := verifyDir(t, dir, k.trusted)
	check(t, err)
	if report.Head != want.Head || report.Records != 15 || e.HostKey != k.public {
		t.Errorf("report %+v, key %q", report, e.HostKey)
	}
	_, err = proof.Verify(context.Background(), e, proof.Trust{Keys: newKey(t).trusted, Unlogged: true})
	wants(t, err, proof.ErrCannotBeJudged, proof.ErrUnknownKey, 0)
}

func TestBundleTampered(t *testing.T) {
	k := newKey(t)
	dir := newRun(t, k, "r-one")
	reframe(t, segPath(dir, 6), func(fs []frame) []frame { return fs[1:] })
	e, err := openBytes(t, bundle(t, dir, k))
	check(t, err)
	defer e.Close()
	_, err = proof.Verify(context.Background(), e, proof.Trust{Keys: k.trusted, Unlogged: true})
	wants(t, err, proof.ErrDoesNotHold, proof.ErrMissing, 6)
}

func TestBundleOfLiveRun(t *testing.T) {
	k := newKey(t)
	dir := filepath.Join(t.TempDir(), "r-live")
	l, err := wal.Create(dir, wal.Options{Run: "r-live", Sealer: proof.NewSealer(k.signer, facts), SegmentAge: time.Hour})
	check(t, err)
	if err := proof.WriteBundle(t.Context(), &bytes.Buffer{}, dir, proof.BundleOptions{HostKey: k.public}); !errors.Is(err, proof.ErrLive) {
		t.Errorf("bundle of a live run: %v", err)
	}
	check(t, l.Close(t.Context(), wal.Sealed))
	if err := proof.WriteBundle(t.Context(), &bytes.Buffer{}, dir, proof.BundleOptions{HostKey: "nonsense"}); err == nil {
		t.Error("a public key that is none is accepted")
	}
}

func TestBundleRefused(t *testing.T) {
	type entry struct {
		name string
		size int
	}
	for name, c := range map[string]struct {
		entries []entry
		want    error
	}{
		"nothing":       {nil, proof.ErrBundle},
		"path upwards":  {[]entry{{"../00000000000000000001.seg", 1}}, proof.ErrBundle},
		"absolute path": {[]entry{{"/etc/passwd", 1}}, proof.ErrBundle},
		"folder":        {[]entry{{"x/", 0}}, proof.ErrBundle},
		"other file":    {[]entry{{"host.key", 1}}, proof.ErrBundle},
		"twice":         {[]entry{{"host.pub", 1}, {"host.pub", 1}}, proof.ErrBundle},
		"large note":    {[]entry{{"host.pub", 1}, {"00000000000000000001.manifest", 1 << 20}}, proof.ErrBundleSize},
		"bomb":          {[]entry{{"host.pub", 1}, {"00000000000000000001.seg", 80 << 20}}, proof.ErrBundleSize},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			z := zip.NewWriter(&b)
			for _, e := range c.entries {
				f, err := z.Create(e.name)
				check(t, err)
				if e.size > 0 {
					_, err = f.Write(make([]byte, e.size))
				}
				check(t, err)
			}
			check(t, z.Close())
			if _, err := openBytes(t, b.Bytes()); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	if _, err := openBytes(t, []byte("no zip")); !errors.Is(err, proof.ErrBundle) {
		t.Errorf("not a zip: %v", err)
	}
}
