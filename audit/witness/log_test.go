package witness

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// testLog is a log made with golang.org/x/mod/sumdb/tlog, without code of Tessera or of this package.
type testLog struct {
	name   string
	signer note.Signer
	key    note.Verifier
	hashes []tlog.Hash
	n      int64
}

func newTestLog(t testing.TB, name string) *testLog {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	l := &testLog{name: name}
	if l.signer, err = note.NewSigner(skey); err != nil {
		t.Fatal(err)
	}
	if l.key, err = note.NewVerifier(vkey); err != nil {
		t.Fatal(err)
	}
	return l
}

// fork returns a log with the same key whose later entries differ.
func (l *testLog) fork() *testLog {
	other := *l
	other.hashes = append([]tlog.Hash(nil), l.hashes...)
	return &other
}

func (l *testLog) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		out[i] = l.hashes[x]
	}
	return out, nil
}

func (l *testLog) add(t testing.TB, entries ...string) {
	t.Helper()
	for _, e := range entries {
		h, err := tlog.StoredHashes(l.n, []byte(e), l)
		if err != nil {
			t.Fatal(err)
		}
		l.hashes = append(l.hashes, h...)
		l.n++
	}
}

func (l *testLog) checkpoint(t testing.TB, size int64) []byte {
	t.Helper()
	root, err := tlog.TreeHash(size, l)
	if err != nil {
		t.Fatal(err)
	}
	return l.sign(t, fmt.Sprintf("%s\n%d\n%s\n", l.name, size, base64.StdEncoding.EncodeToString(root[:])))
}

func (l *testLog) sign(t testing.TB, text string) []byte {
	t.Helper()
	signed, err := note.Sign(&note.Note{Text: text}, l.signer)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// request formats the body of add-checkpoint without this package.
func (l *testLog) request(t testing.TB, old, size int64) string {
	t.Helper()
	var body bytes.Buffer
	fmt.Fprintf(&body, "old %d\n", old)
	if 0 < old && old < size {
		path, err := tlog.ProveTree(size, old, l)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range path {
			fmt.Fprintf(&body, "%s\n", base64.StdEncoding.EncodeToString(h[:]))
		}
	}
	fmt.Fprintf(&body, "\n%s", l.checkpoint(t, size))
	return body.String()
}

// reply is a witness's answer.
type reply struct {
	status int
	kind   string
	body   string
}

// post sends a body with net/http alone.
func post(t testing.TB, url, body string) reply {
	t.Helper()
	resp, err := http.Post(url+"/add-checkpoint", "text/plain", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header.Get("Content-Type"), string(data)}
}

// start serves a witness on loopback until stop is called or the test ends.
func start(t testing.TB, dir string, logs ...note.Verifier) (url string, stop func()) {
	t.Helper()
	signer, verifier, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Config{Dir: dir, Signer: signer, Verifier: verifier, Logs: logs, PerSecond: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Serve(ctx, listener, nil) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		http.DefaultClient.CloseIdleConnections()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Serve does not return")
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return "http://" + listener.Addr().String(), stop
}

// newWitness makes a witness's directory and returns it with the verifier of its key.
func newWitness(t testing.TB, name string) (dir string, v note.Verifier) {
	t.Helper()
	dir = t.TempDir()
	if _, err := Generate(dir, name); err != nil {
		t.Fatal(err)
	}
	_, v, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, v
}
