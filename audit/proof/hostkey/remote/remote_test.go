package remote

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
)

var _ hostlog.Prover = signer{}

const sandboxRun = "r-01m7xwjm28tv7cnff0wa831wp1"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fixture is a Server with its key, and a connection to it.
type fixture struct {
	*testing.T
	options Options
	key     hostkey.Key
	server  *Server
	conn    *privsep.Conn
}

func newKey(t testing.TB, name string) hostkey.Key {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	must(t, err)
	s, err := note.NewSigner(skey)
	must(t, err)
	return hostkey.Key{Signer: s, Public: vkey}
}

func start(t *testing.T) *fixture {
	f := &fixture{T: t, key: newKey(t, "custody-test")}
	f.options = Options{
		Dir: filepath.Join(t.TempDir(), "signed"), DeleteAfter: 24 * time.Hour, Prefix: "a-", Tenant: "acme",
		Key:     func() (hostkey.Key, error) { return f.key, nil },
		Trusted: func() (note.Verifiers, error) { return note.VerifierList(f.verifier()), nil },
	}
	f.restart()
	t.Cleanup(func() { f.server.Close() })
	return f
}

func (f *fixture) verifier() note.Verifier {
	v, err := f.key.Verifier()
	must(f, err)
	return v
}

// restart ends the server, and starts it again with a new connection.
func (f *fixture) restart() {
	f.Helper()
	if f.server != nil {
		must(f, f.server.Close())
	}
	var err error
	f.server, err = NewServer(f.options)
	must(f, err)
	f.conn = privseptest.Connect(f, f.server.Handlers())
}

// sign makes the call of a compromised caller.
func (f *fixture) sign(c signCall) (signAnswer, error) {
	c.Key = f.key.KeyHash()
	var a signAnswer
	_, err := f.conn.Call(f.Context(), callSign, c, &a)
	return a, err
}

// refuses fails the test unless a call is refused for this reason, without a signature.
func (f *fixture) refuses(c signCall, want error) {
	f.Helper()
	if a, err := f.sign(c); err == nil || !strings.Contains(err.Error(), want.Error()) || a.Signature != nil {
		f.Errorf("got %q, %v; want the error %q", a.Signature, err, want)
	}
}

// signed fails the test unless a signature is made, and is that of the key.
func (f *fixture) signed(c signCall) {
	f.Helper()
	a, err := f.sign(c)
	if err != nil || a.Behind || !f.verifier().Verify([]byte(c.Text), a.Signature) {
		f.Errorf("got %+v, %v; want a signature", a, err)
	}
}

// tree is a log that is made without code of this package.
type tree struct {
	name   string
	hashes []tlog.Hash
	n      int64
}

func (l *tree) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	for _, x := range indexes {
		out = append(out, l.hashes[x])
	}
	return out, nil
}

// add adds entries and returns the log.
func (l *tree) add(t testing.TB, entries ...string) *tree {
	t.Helper()
	for _, e := range entries {
		h, err := tlog.StoredHashes(l.n, []byte(e), l)
		must(t, err)
		l.hashes = append(l.hashes, h...)
		l.n++
	}
	return l
}

func (l *tree) fork() *tree {
	return &tree{l.name, append([]tlog.Hash(nil), l.hashes...), l.n}
}

// checkpoint returns the call for a checkpoint of the whole log, with the proof that it extends its first entries.
func (l *tree) checkpoint(t testing.TB, from int64) signCall {
	t.Helper()
	root, err := tlog.TreeHash(l.n, l)
	must(t, err)
	c := signCall{From: uint64(from), Text: fmt.Sprintf("%s\n%d\n%s\n", l.name, l.n, base64.StdEncoding.EncodeToString(root[:]))}
	if 0 < from && from < l.n {
		path, err := tlog.ProveTree(l.n, from, l)
		must(t, err)
		for _, h := range path {
			c.Proof = append(c.Proof, merkle.Hash(h))
		}
	}
	return c
}

// TestCheckpoints: only checkpoints of one growing log are signed, also after a restart.
func TestCheckpoints(t *testing.T) {
	f := start(t)
	log := &tree{name: "custody-test"}
	f.signed(log.checkpoint(t, 0))
	other := log.fork()
	log.add(t, "a", "b", "c")
	other.add(t, "A", "b", "c", "d", "e")
	f.signed(log.checkpoint(t, 0))
	three := log.checkpoint(t, 3)
	f.signed(three) // the same again
	empty, foreign := (&tree{name: "custody-test"}).checkpoint(t, 0), (&tree{name: "custody-other"}).add(t, "a", "b", "c", "d")
	log.add(t, "d")
	bare := log.checkpoint(t, 3)
	bare.Proof = nil
	long := log.checkpoint(t, 3)
	long.Proof = make([]merkle.Hash, maxProof+1)
	check := func() {
		t.Helper()
		f.refuses(empty, errShrunk)
		f.refuses((&tree{name: "custody-test"}).add(t, "a", "b").checkpoint(t, 0), errShrunk)
		f.refuses(other.checkpoint(t, 3), errForked)
		f.refuses((&tree{name: "custody-test"}).add(t, "a", "b", "C").checkpoint(t, 3), errForked)
		f.refuses(foreign.checkpoint(t, 3), errOrigin)
		f.refuses(bare, errForked)
		f.refuses(long, errTooLong)
		for _, from := range []int64{0, 2, 4} { // a proof from another size is never enough
			if a, err := f.sign(log.checkpoint(t, from)); err != nil || a.Signature != nil || !a.Behind || a.Size != 3 {
				t.Errorf("from %d: %+v, %v", from, a, err)
			}
		}
	}
	check()
	f.restart()
	check()
	f.signed(log.checkpoint(t, 3))
	f.refuses(three, errShrunk) // a replay
	f.restart()
	f.refuses(three, errShrunk)
	log.add(t, "e", "f")
	f.signed(log.checkpoint(t, 4))
}

// TestNotDurable: without the state on the disk there is no signature.
func TestNotDurable(t *testing.T) {
	f := start(t)
	must(t, os.RemoveAll(f.options.Dir))
	log := (&tree{name: "custody-test"}).add(t, "a")
	f.refuses(log.checkpoint(t, 0), unix.ENOENT)
	must(t, os.MkdirAll(f.options.Dir, 0o700))
	f.signed(log.checkpoint(t, 0))
}

// TestPublished: a server without state continues the log that was published before.
func TestPublished(t *testing.T) {
	f := start(t)
	log := (&tree{name: "custody-test"}).add(t, "a", "b")
	signed, err := note.Sign(&note.Note{Text: log.checkpoint(t, 0).Text}, f.key)
	must(t, err)
	f.options.Dir, f.options.Published = filepath.Join(t.TempDir(), "signed"), signed
	f.restart()
	f.refuses((&tree{name: "custody-test"}).add(t, "A", "b", "c").checkpoint(t, 2), errForked)
	log.add(t, "c")
	f.signed(log.checkpoint(t, 2))
	f.restart() // the published one is older now
	f.refuses((&tree{name: "custody-test"}).add(t, "a", "b").checkpoint(t, 0), errShrunk)
	f.options.Dir = filepath.Join(t.TempDir(), "signed")
	f.options.Published, err = note.Sign(&note.Note{Text: log.checkpoint(t, 0).Text}, newKey(t, "custody-test"))
	must(t, err)
	if _, err := NewServer(f.options); err == nil {
		t.Error("a published checkpoint with another key's signature was accepted")
	}
}

// TestOneServer: two servers with one state would contradict each other; and only their owner may change the state.
func TestOneServer(t *testing.T) {
	f := start(t)
	if _, err := NewServer(f.options); err == nil || !strings.Contains(err.Error(), "another process signs") {
		t.Errorf("a second one: %v", err)
	}
	must(t, f.server.Close())
	f.refuses((&tree{name: "custody-test"}).checkpoint(t, 0), errClosed)
	must(t, os.Chmod(f.options.Dir, 0o770))
	if _, err := NewServer(f.options); err == nil || !strings.Contains(err.Error(), "others can change") {
		t.Errorf("a shared directory: %v", err)
	}
	must(t, os.Chmod(f.options.Dir, 0o700))
}

// textOf returns the text that a statement signs.
func textOf(t testing.TB, sign func(note.Signer) ([]byte, error)) string {
	t.Helper()
	signed, err := sign(newKey(t, "custody-any"))
	must(t, err)
	text, _, _ := strings.Cut(string(signed), "\n\n")
	return text + "\n"
}

// TestKinds: each kind of statement is signed, or refused for its reason.
func TestKinds(t *testing.T) {
	f := start(t)
	now := time.Now()
	manifest := textOf(t, func(s note.Signer) ([]byte, error) {
		return sealer.NewSigner(s, sandboxRun, statement.Facts{}).Sign(sealer.Segment{First: 1, Last: 1, Count: 1})
	})
	selection := func(at time.Time) string {
		return textOf(t, statement.Selected{Run: sandboxRun, By: "ann", Time: at}.Sign)
	}
	report := func(at time.Time) string {
		return textOf(t, func(s note.Signer) ([]byte, error) {
			return statement.SignAttachments(s, []statement.Subject{{Run: sandboxRun}}, []statement.Attachment{{Name: "report/a.html", Data: []byte("x")}}, "ann", at)
		})
	}
	rotation, err := statement.NewRotation(f.key.Public, newKey(t, "custody-test").Public, now)
	must(t, err)
	host, err := statement.NewHost(newKey(t, "custody-evil").Public, now)
	must(t, err)
	erasure := textOf(t, statement.Erasure{V: 1, Run: sandboxRun, Seq: 1, Kind: audit.KindOutput, Reason: "gdpr", By: "ann", Time: now.UTC()}.Sign)
	trailer := textOf(t, statement.Trailer{Run: sandboxRun, Files: 3}.Sign)
	for name, text := range map[string]string{"a selection": selection(now), "a report": report(now.Add(-time.Minute)), "a trailer": trailer} {
		t.Run(name, func(t *testing.T) { f.signed(signCall{Text: text}) })
	}
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"a manifest":           {manifest, errManifest},
		"an erasure":           {erasure, errAdmin},
		"a rotation":           {textOf(t, rotation.Sign), errAdmin},
		"another host":         {textOf(t, host.Sign), errAdmin},
		"an old selection":     {selection(now.Add(-2 * maxAge)), errTime},
		"an old report":        {report(now.Add(-2 * maxAge)), errTime},
		"a report of tomorrow": {report(now.Add(24 * time.Hour)), errTime},
		"an unknown kind":      {"custody cheque v1\n{\"v\":1}\n", errors.New("unknown kind")},
		"a later version":      {strings.Replace(trailer, "v1", "v2", 1), errors.New("unknown kind")},
		"another encoding":     {strings.Replace(trailer, ":", ": ", 1), errors.New("canonical")},
		"a second line":        {trailer + "custody manifest v1\n", errors.New("")},
		"nothing":              {"", errors.New("checkpoint is not")},
		"a cosignature":        {"cosignature/v1\ntime 1\ncustody-test\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n", errors.New("")},
		"binary data":          {"\x00\x01\x02", errors.New("")},
		"too much":             {trailer + strings.Repeat(" ", maxText), errTooLong},
	} {
		t.Run(name, func(t *testing.T) { f.refuses(signCall{Text: c.text}, c.want) })
	}
	var a signAnswer
	if _, err := f.conn.Call(t.Context(), callSign, signCall{Text: trailer, Key: 1}, &a); err == nil || !strings.Contains(err.Error(), errRotated.Error()) {
		t.Errorf("with another key: %v", err)
	}
}

// closed returns a closing manifest of a sandbox's run that a key signed at a time.
func closed(t testing.TB, key note.Signer, at time.Time, closing wal.Closing) []byte {
	t.Helper()
	m, err := statement.NewSealer(key, statement.Facts{Tenant: "acme"}).Sign(wal.Segment{Run: sandboxRun, First: 1, Last: 5, Count: 5, Time: at, Closing: closing}, merkle.Hash{1})
	must(t, err)
	return m
}

// TestDeletions: a deletion is signed for a run whose closing manifest shows that delete_after has passed.
func TestDeletions(t *testing.T) {
	f := start(t)
	now := time.Now().UTC()
	ended := now.Add(-25 * time.Hour)
	proof := closed(t, f.key, ended, wal.Sealed)
	good := statement.Deletion{
		Run: sandboxRun, Tenant: "acme", Began: ended.Add(-time.Minute), Ended: ended, Records: 5, Segments: 1, Manifest: statement.Digest(proof),
		Rule: statement.DeleteRule(f.options.DeleteAfter), Time: now,
	}
	f.signed(signCall{Text: textOf(t, good.Sign), Manifest: proof})
	young := closed(t, f.key, now.Add(-23*time.Hour), wal.Sealed)
	for name, c := range map[string]struct {
		change   func(*statement.Deletion)
		manifest []byte
		want     error
	}{
		"no manifest":       {func(*statement.Deletion) {}, nil, errors.New("closing manifest")},
		"another key's":     {func(*statement.Deletion) {}, closed(t, newKey(t, "custody-test"), ended, wal.Sealed), errors.New("closing manifest")},
		"not closed":        {func(*statement.Deletion) {}, closed(t, f.key, ended, wal.Open), errNoClose},
		"too young":         {func(d *statement.Deletion) { d.Manifest, d.Ended = statement.Digest(young), now.Add(-23*time.Hour) }, young, errTooYoung},
		"too young, denied": {func(d *statement.Deletion) { d.Manifest = statement.Digest(young) }, young, errNotSame},
		"another run":       {func(d *statement.Deletion) { d.Run = "r-01m7xwjm28tv7cnff0wa831wp2" }, proof, errNotSame},
		"another tenant":    {func(d *statement.Deletion) { d.Tenant = "beta" }, proof, errNotSame},
		"more segments":     {func(d *statement.Deletion) { d.Segments = 2 }, proof, errNotSame},
		"more records":      {func(d *statement.Deletion) { d.Records = 6 }, proof, errNotSame},
		"another manifest":  {func(d *statement.Deletion) { d.Manifest = merkle.Hash{7} }, proof, errNotSame},
		"another rule":      {func(d *statement.Deletion) { d.Rule = "delete_after: 1s" }, proof, errNoRule},
		"back-dated":        {func(d *statement.Deletion) { d.Time = ended }, proof, errTime},
	} {
		t.Run(name, func(t *testing.T) {
			d := good
			c.change(&d)
			f.refuses(signCall{Text: textOf(t, d.Sign), Manifest: c.manifest}, c.want)
		})
	}
	f.options.DeleteAfter = 0
	f.restart()
	f.refuses(signCall{Text: textOf(t, good.Sign), Manifest: proof}, errNoRule)
}
