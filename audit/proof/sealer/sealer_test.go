package sealer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/vmm/confine"
)

const (
	testRun = "r-01m7xwjm28tv7cnff0wa831wp1"
	logDir  = "/log/" + testRun // in the worker's root directory
)

func TestMain(m *testing.M) { privseptest.Main(m, work) }

// work writes the run's log, for as many segments as the call states, and closes it.
func work() error {
	var c *privsep.Conn
	c, _, err := privsep.Enter(map[string]privsep.Handler{
		"write": privsep.Handle(func(ctx context.Context, segments int) (any, []*os.File, error) {
			return struct{}{}, nil, write(ctx, c, segments)
		}),
	}, 0)
	if err != nil {
		return err
	}
	return c.Run(context.Background())
}

func write(ctx context.Context, c *privsep.Conn, segments int) error {
	l, err := wal.Create(logDir, wal.Options{Run: testRun, Sealer: NewRemote(c), SegmentAge: time.Hour})
	if err != nil {
		return err
	}
	red := redact.New([]byte("0123456789abcdef0123456789abcdef"))
	for i := range segments {
		for j := range 5 {
			sealed, err := red.Seal(&audit.Event{
				Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindOutput,
				Output: &audit.Output{Stream: "stdout", Text: audit.Text(fmt.Sprintf("line %d of segment %d\n", j, i))},
			})
			if err != nil {
				return err
			}
			if _, err := l.Append(ctx, sealed); err != nil {
				return err
			}
		}
		if err := l.Rotate(ctx); err != nil {
			return err
		}
	}
	return l.Close(ctx, wal.Sealed)
}

func newKey(t *testing.T) (note.Signer, note.Verifiers) {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, "custody-test")
	must(t, err)
	signer, err := note.NewSigner(skey)
	must(t, err)
	verifier, err := note.NewVerifier(vkey)
	must(t, err)
	return signer, note.VerifierList(verifier)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var facts = statement.Facts{PolicyDigest: "sha256:aa", RulesetDigest: "sha256:bb", TemplateDigest: "sha256:cc", Tier: "qemu-tcg"}

// TestRecordOfAWorker: the log of a worker that has no key verifies with the key.
func TestRecordOfAWorker(t *testing.T) {
	key, trusted := newKey(t)
	dir := t.TempDir()
	w := privseptest.Worker("log")
	w.Binds = append(w.Binds, confine.Bind{Path: dir, Name: "/log", Flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC})
	w.Prepare = func(uid int) error { return os.Chown(dir, uid, uid) }
	p := privseptest.Start(t, w, NewSigner(key, testRun, facts).Handlers())
	_, err := p.Call(t.Context(), "write", 3, nil)
	must(t, err)
	e, err := proof.OpenDir(filepath.Join(dir, testRun))
	must(t, err)
	defer e.Close()
	report, err := proof.Verify(t.Context(), e, proof.Trust{Keys: trusted, Unlogged: true})
	if err != nil || report.Records != 15 {
		t.Errorf("%d records, %v", report.Records, err)
	}
}

// signs has a signer sign each segment in turn.
func signs(t *testing.T, s *Signer, all ...Segment) {
	t.Helper()
	for _, seg := range all {
		_, err := s.Sign(seg)
		must(t, err)
	}
}

func root(b byte) (h merkle.Hash) {
	h[0] = b
	return h
}

var (
	first  = Segment{Index: 0, First: 1, Last: 5, Count: 5, Bytes: 100, Root: root(1)}
	second = Segment{Index: 1, First: 6, Last: 9, Count: 4, Bytes: 100, Root: root(2)}
	ending = Segment{Index: 2, First: 10, Last: 9, Closing: wal.Sealed}
)

// TestRefusals: a worker cannot have a segment signed that contradicts those before it.
func TestRefusals(t *testing.T) {
	change := func(s Segment, do func(*Segment)) Segment {
		do(&s)
		return s
	}
	for name, c := range map[string]struct {
		signed []Segment
		seg    Segment
		want   error
	}{
		"the second one first":      {nil, second, errOrder},
		"not from the first record": {nil, change(first, func(s *Segment) { s.First, s.Count = 2, 4 }), errOrder},
		"a second version":          {[]Segment{first}, change(first, func(s *Segment) { s.Root = root(9) }), errOrder},
		"a second version, earlier": {[]Segment{first, second}, first, errOrder},
		"a hole":                    {[]Segment{first}, change(second, func(s *Segment) { s.First, s.Last = 7, 10 }), errOrder},
		"an overlap":                {[]Segment{first}, change(second, func(s *Segment) { s.First, s.Last = 5, 8 }), errOrder},
		"a skipped segment":         {[]Segment{first}, change(second, func(s *Segment) { s.Index = 2 }), errOrder},
		"a wrong count":             {[]Segment{first}, change(second, func(s *Segment) { s.Count = 5 }), errRange},
		"a huge number":             {[]Segment{first}, change(second, func(s *Segment) { s.Last, s.Count = math.MaxUint64, math.MaxUint64-5 }), errRange},
		"negative bytes":            {[]Segment{first}, change(second, func(s *Segment) { s.Bytes = -1 }), errRange},
		"empty and open":            {[]Segment{first}, Segment{Index: 1, First: 6, Last: 5}, errEmpty},
		"an unknown closing":        {[]Segment{first}, change(second, func(s *Segment) { s.Closing = "lost" }), errEnd},
		"an unknown stage":          {[]Segment{first}, change(second, func(s *Segment) { s.Losses = wal.Losses{"kitchen": {Gaps: 1}} }), errLosses},
		"after the end":             {[]Segment{first, second, ending}, Segment{Index: 3, First: 10, Last: 10, Count: 1}, errClosed},
		"a second end":              {[]Segment{first, second, ending}, Segment{Index: 3, First: 10, Last: 9, Closing: wal.Interrupted}, errClosed},
	} {
		t.Run(name, func(t *testing.T) {
			key, _ := newKey(t)
			s := NewSigner(key, testRun, facts)
			signs(t, s, c.signed...)
			if m, err := s.Sign(c.seg); !errors.Is(err, c.want) || m != nil {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// TestDropped: a segment without the seqs of events that were dropped is signed if it declares how many.
func TestDropped(t *testing.T) {
	lost := func(s Segment, events uint64) Segment {
		s.Losses = wal.Losses{string(audit.StageWAL): {Gaps: 1, Events: events}}
		return s
	}
	inside, before := second, second
	inside.Last += 10
	before.First, before.Last = second.First+10, second.Last+10
	for _, seg := range []Segment{inside, before} {
		key, _ := newKey(t)
		s := NewSigner(key, testRun, facts)
		signs(t, s, first)
		if _, err := s.Sign(lost(seg, 9)); err == nil {
			t.Errorf("a segment that declares too few lost events was signed: %+v", seg)
		}
		signs(t, s, lost(seg, 10))
	}
}

// TestSignedOnce: a segment that is signed again is the same, and the time and the chain are the signer's.
func TestSignedOnce(t *testing.T) {
	key, trusted := newKey(t)
	s := NewSigner(key, testRun, facts)
	clock := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	s.now = func() time.Time { clock = clock.Add(time.Second); return clock }
	var before []byte
	for i, seg := range []Segment{first, second, ending} {
		signed, err := s.Sign(seg)
		must(t, err)
		again, err := s.Sign(seg)
		if err != nil || string(again) != string(signed) {
			t.Errorf("segment %d, again: %q, %v", i, again, err)
		}
		n, err := note.Open(signed, trusted)
		must(t, err)
		m, err := statement.ParseManifest(n.Text)
		must(t, err)
		var prev merkle.Hash
		if before != nil {
			prev = statement.Digest(before)
		}
		if m.Run != testRun || m.Segment != uint64(i) || m.Prev != prev || !m.SealedAt.Equal(clock) || m.Facts != facts || m.Root != seg.Root {
			t.Errorf("segment %d: %+v", i, m)
		}
		before = signed
	}
}

// TestResume: a signer continues the chain of another one, and only after a manifest of its run that a trusted key signed.
func TestResume(t *testing.T) {
	key, trusted := newKey(t)
	before := NewSigner(key, testRun, facts)
	signs(t, before, first, second)
	s, err := Resume(key, testRun, before.Last(), trusted)
	must(t, err)
	again := second
	again.Losses = wal.Losses{}
	if m, err := s.Sign(again); err != nil || string(m) != string(before.Last()) {
		t.Errorf("the last segment again: %q, %v", m, err)
	}
	for name, seg := range map[string]Segment{"an earlier segment": first, "the last one, changed": {Index: 1, First: 6, Last: 9, Count: 4, Root: root(9)}} {
		if _, err := s.Sign(seg); !errors.Is(err, errOrder) {
			t.Errorf("%s: %v", name, err)
		}
	}
	signed, err := s.Sign(ending)
	must(t, err)
	m, err := statement.ReadManifest(signed)
	if err != nil || m.Prev != statement.Digest(before.Last()) || m.Facts != facts {
		t.Errorf("%+v, %v", m, err)
	}
	if s, err = Resume(key, testRun, signed, trusted); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sign(Segment{Index: 3, First: 10, Last: 10, Count: 1}); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// TestResumeRefusals: what is not a signed manifest of the run cannot be continued.
func TestResumeRefusals(t *testing.T) {
	key, trusted := newKey(t)
	stranger, _ := newKey(t)
	of := func(key note.Signer, run string) []byte {
		s := NewSigner(key, run, facts)
		signs(t, s, first)
		return s.Last()
	}
	checkpoint, err := note.Sign(&note.Note{Text: "custody-test\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"}, key)
	must(t, err)
	good := of(key, testRun)
	for name, last := range map[string][]byte{
		"nothing":          nil,
		"garbage":          []byte("garbage"),
		"another run's":    of(key, "r-other"),
		"another key's":    of(stranger, testRun),
		"two signatures":   append(append([]byte(nil), good...), good[strings.LastIndex(string(good), "\n\n")+2:]...),
		"a torn one":       good[:len(good)-5],
		"not a manifest":   checkpoint,
		"a changed record": []byte(strings.Replace(string(good), `"last":5`, `"last":6`, 1)),
	} {
		if s, err := Resume(key, testRun, last, trusted); err == nil || s != nil {
			t.Errorf("%s: continued", name)
		}
	}
}

// TestSealIsWhole: a worker cannot set what only the signer decides.
func TestSealIsWhole(t *testing.T) {
	key, _ := newKey(t)
	handle := NewSigner(key, testRun, facts).Handlers()[callSeal]
	for _, field := range []string{`"Run":"r-other"`, `"Time":"2020-01-01T00:00:00Z"`, `"Prev":""`, `"Facts":{}`, `"Leaves":[]`} {
		_, _, err := handle(t.Context(), []byte(`{"Index":0,"First":1,"Last":1,"Count":1,`+field+`}`), nil)
		if err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
