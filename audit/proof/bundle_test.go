package proof_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/archive"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

func bundle(t testing.TB, dir string, k key) []byte {
	t.Helper()
	var b bytes.Buffer
	check(t, proof.WriteBundle(t.Context(), &b, dir, proof.BundleOptions{HostKey: k.public, Signer: k.signer}))
	return b.Bytes()
}

func openBytes(t testing.TB, data []byte) (*proof.Evidence, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle.tar")
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
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrUnknownKey, 0)
}

func TestBundleTampered(t *testing.T) {
	k := newKey(t)
	dir := newRun(t, k, "r-one")
	reframe(t, segPath(dir, 6), func(fs []frame) []frame { return fs[1:] })
	e, err := openBytes(t, bundle(t, dir, k))
	check(t, err)
	defer e.Close()
	_, err = proof.Verify(context.Background(), e, proof.Trust{Keys: k.trusted, Unlogged: true})
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrMissing, 6)
}

func TestBundleOfLiveRun(t *testing.T) {
	k := newKey(t)
	dir := filepath.Join(t.TempDir(), "r-live")
	l, err := wal.Create(dir, wal.Options{Run: "r-live", Sealer: statement.NewSealer(k.signer, facts), SegmentAge: time.Hour})
	check(t, err)
	if err := proof.WriteBundle(t.Context(), &bytes.Buffer{}, dir, proof.BundleOptions{HostKey: k.public, Signer: k.signer}); !errors.Is(err, verdict.ErrLive) {
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
		"nothing":       {nil, verdict.ErrBundle},
		"path upwards":  {[]entry{{"../00000000000000000001.seg", 1}}, verdict.ErrBundle},
		"absolute path": {[]entry{{"/etc/passwd", 1}}, verdict.ErrBundle},
		"folder":        {[]entry{{"x/", 0}}, verdict.ErrBundle},
		"other file":    {[]entry{{"host.key", 1}}, verdict.ErrBundle},
		"no trailer":    {[]entry{{"README.txt", 1}, {"host.pub", 1}}, verdict.ErrBundle},
		"large note":    {[]entry{{"00000000000000000001.manifest", 1 << 20}}, verdict.ErrBundleSize},
		"large segment": {[]entry{{"00000000000000000001.seg", 80 << 20}}, verdict.ErrBundleSize},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			a := archive.NewWriter(&b)
			for _, e := range c.entries {
				check(t, a.Add(e.name, int64(e.size), bytes.NewReader(make([]byte, e.size))))
			}
			check(t, a.Close())
			if _, err := openBytes(t, b.Bytes()); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	for _, data := range []string{"", "no tar", "PK\x03\x04 an old one"} {
		if _, err := openBytes(t, []byte(data)); !errors.Is(err, verdict.ErrBundle) {
			t.Errorf("%q: %v", data, err)
		}
	}
}

var bits = flag.Int("bits", 37, "how many bits TestEveryBit goes on each time")

// TestEveryBit flips bits of a bundle: each flip is detected. With -bits 1 it flips every bit.
func TestEveryBit(t *testing.T) {
	w := newWorld(t)
	data := w.bundle(t, w.one).pack(t)
	path := filepath.Join(t.TempDir(), "bundle.tar")
	f, err := os.Create(path)
	check(t, err)
	defer f.Close()
	_, err = f.Write(data)
	check(t, err)
	trust := proof.Trust{Keys: w.trusted} // nothing beside the host's key
	judge := func() error {
		e, err := proof.OpenBundle(path)
		if err != nil {
			return err
		}
		defer e.Close()
		_, err = proof.Verify(t.Context(), e, trust)
		return err
	}
	check(t, judge())
	for bit := 0; bit < 8*len(data); bit += *bits {
		changed := []byte{data[bit/8] ^ 1<<(bit%8)}
		_, err := f.WriteAt(changed, int64(bit/8))
		check(t, err)
		if judge() == nil {
			t.Errorf("bit %d of byte %d can be flipped", bit%8, bit/8)
		}
		_, err = f.WriteAt(data[bit/8:bit/8+1], int64(bit/8))
		check(t, err)
	}
	check(t, judge())
}
