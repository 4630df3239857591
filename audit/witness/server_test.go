package witness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// cosigned fails unless the reply is a cosignature of the checkpoint by v.
func cosigned(t *testing.T, r reply, checkpoint []byte, v note.Verifier) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	n, err := note.Open(append(append([]byte(nil), checkpoint...), r.body...), note.VerifierList(v))
	if err != nil || len(n.Sigs) != 1 {
		t.Fatalf("not a cosignature: %q: %v", r.body, err)
	}
}

func refused(t *testing.T, r reply, status int) {
	t.Helper()
	if r.status != status {
		t.Errorf("status %d (%s), want %d", r.status, strings.TrimSpace(r.body), status)
	}
	if strings.Contains(r.body, "—") {
		t.Errorf("a refusal has a signature: %q", r.body)
	}
}

func TestProtocol(t *testing.T) {
	l := newTestLog(t, "example.com/log")
	dir, v := newWitness(t, "example.com/witness")
	url, _ := start(t, dir, l.key)
	l.add(t, "a", "b", "c", "d", "e", "f", "g")

	cosigned(t, post(t, url, l.request(t, 0, 0)), l.checkpoint(t, 0), v)
	cosigned(t, post(t, url, l.request(t, 0, 3)), l.checkpoint(t, 3), v)
	cosigned(t, post(t, url, l.request(t, 3, 3)), l.checkpoint(t, 3), v)
	cosigned(t, post(t, url, l.request(t, 3, 7)), l.checkpoint(t, 7), v)

	behind := post(t, url, l.request(t, 3, 7))
	refused(t, behind, http.StatusConflict)
	if behind.kind != "text/x.tlog.size" || behind.body != "7\n" {
		t.Errorf("a conflict's answer is %q of type %q", behind.body, behind.kind)
	}
	refused(t, post(t, url, l.request(t, 0, 3)), http.StatusConflict) // a replay of the first
	refused(t, post(t, url, strings.Replace(l.request(t, 7, 7), "old 7", "old 8", 1)), http.StatusBadRequest)
}

// TestRefusals sends requests that no honest log sends.
func TestRefusals(t *testing.T) {
	l, stranger := newTestLog(t, "example.com/log"), newTestLog(t, "example.com/other")
	impostor := newTestLog(t, "example.com/log")
	dir, v := newWitness(t, "example.com/witness")
	url, _ := start(t, dir, l.key)
	l.add(t, "a", "b", "c", "d", "e")
	for _, other := range []*testLog{stranger, impostor} {
		other.add(t, "a", "b", "c", "d", "e")
	}
	cosigned(t, post(t, url, l.request(t, 0, 4)), l.checkpoint(t, 4), v)
	good := l.request(t, 4, 5)
	proofLine := strings.Split(good, "\n")[1]
	two := strings.Replace(good, proofLine, proofLine+"\n"+proofLine, 1)
	unsigned, _, _ := strings.Cut(good, "— ")

	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"unknown log":        {stranger.request(t, 0, 5), http.StatusNotFound},
		"wrong key":          {impostor.request(t, 4, 5), http.StatusForbidden},
		"no signature":       {unsigned, http.StatusBadRequest},
		"no proof":           {strings.Replace(good, proofLine+"\n", "", 1), http.StatusUnprocessableEntity},
		"too much proof":     {two, http.StatusUnprocessableEntity},
		"another proof":      {strings.Replace(good, proofLine, strings.Repeat("A", 43)+"=", 1), http.StatusUnprocessableEntity},
		"proof of nothing":   {strings.Replace(l.request(t, 4, 4), "old 4\n", "old 4\n"+proofLine+"\n", 1), http.StatusUnprocessableEntity},
		"empty":              {"", http.StatusBadRequest},
		"only a size":        {"old 4\n", http.StatusBadRequest},
		"no old":             {strings.TrimPrefix(good, "old "), http.StatusBadRequest},
		"leading zero":       {strings.Replace(good, "old 4", "old 04", 1), http.StatusBadRequest},
		"plus":               {strings.Replace(good, "old 4", "old +4", 1), http.StatusBadRequest},
		"negative":           {strings.Replace(good, "old 4", "old -4", 1), http.StatusBadRequest},
		"beyond 64 bits":     {strings.Replace(good, "old 4", "old 18446744073709551620", 1), http.StatusBadRequest},
		"CRLF":               {strings.ReplaceAll(good, "\n", "\r\n"), http.StatusBadRequest},
		"not base64":         {strings.Replace(good, proofLine, "!"+proofLine[1:], 1), http.StatusBadRequest},
		"short hash":         {strings.Replace(good, proofLine, "AAAA", 1), http.StatusBadRequest},
		"64 lines of proof":  {strings.Replace(good, proofLine, strings.TrimSpace(strings.Repeat(proofLine+"\n", 64)), 1), http.StatusBadRequest},
		"size 05":            {"old 4\n" + proofLine + "\n\n" + string(l.sign(t, strings.Replace(text(l, t, 5), "\n5\n", "\n05\n", 1))), http.StatusBadRequest},
		"short root":         {"old 4\n" + proofLine + "\n\n" + string(l.sign(t, "example.com/log\n5\nAAAA\n")), http.StatusBadRequest},
		"no origin":          {"old 4\n" + proofLine + "\n\n" + string(l.sign(t, strings.Replace(text(l, t, 5), l.name, "", 1))), http.StatusBadRequest},
		"empty extension":    {"old 4\n" + proofLine + "\n\n" + string(l.sign(t, text(l, t, 5)+"\nx\n")), http.StatusBadRequest},
		"other's signature":  {"old 4\n" + proofLine + "\n\n" + string(stranger.sign(t, text(l, t, 5))), http.StatusForbidden},
		"empty tree, forged": {"old 0\n\n" + string(l.sign(t, strings.Replace(text(l, t, 5), "\n5\n", "\n0\n", 1))), http.StatusConflict},
		"too large":          {good + strings.Repeat("x", maxRequest), http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) { refused(t, post(t, url, c.body), c.status) })
	}
	cosigned(t, post(t, url, good), l.checkpoint(t, 5), v) // the refused requests have changed no state
}

func text(l *testLog, t *testing.T, size int64) string {
	body, _, _ := strings.Cut(string(l.checkpoint(t, size)), "\n\n")
	return body + "\n"
}

func TestHTTP(t *testing.T) {
	dir, _ := newWitness(t, "w")
	url, _ := start(t, dir)
	for path, want := range map[string]int{"/": 404, "/add-checkpoint": 405, "/add-checkpoint/": 404} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// TestFork: a log with two histories gets cosignatures for only one of them.
func TestFork(t *testing.T) {
	l := newTestLog(t, "example.com/log")
	dir, v := newWitness(t, "example.com/witness")
	url, stop := start(t, dir, l.key)
	l.add(t, "a", "b", "c")
	other := l.fork()
	l.add(t, "d", "e")
	other.add(t, "D", "E", "F")
	cosigned(t, post(t, url, l.request(t, 0, 5)), l.checkpoint(t, 5), v)
	attempts := func(url string) {
		t.Helper()
		refused(t, post(t, url, other.request(t, 5, 5)), http.StatusConflict)
		refused(t, post(t, url, other.request(t, 5, 6)), http.StatusUnprocessableEntity)
		refused(t, post(t, url, other.request(t, 0, 5)), http.StatusConflict)
		refused(t, post(t, url, other.request(t, 3, 6)), http.StatusConflict)
		refused(t, post(t, url, l.request(t, 3, 4)), http.StatusConflict) // an older state
	}
	attempts(url)
	stop()
	url, _ = start(t, dir, l.key)
	attempts(url) // after a restart

	// Two different signed checkpoints of one size are stored: they prove the fork.
	kept, err := filepath.Glob(filepath.Join(dir, stateDir, "*.conflict*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %v: %v", kept, err)
	}
	data, err := os.ReadFile(kept[0])
	if err != nil || string(data) != string(other.checkpoint(t, 5)) {
		t.Errorf("kept %q: %v", data, err)
	}
	l.add(t, "f")
	cosigned(t, post(t, url, l.request(t, 5, 6)), l.checkpoint(t, 6), v)
}

// TestRace: of many concurrent requests that start from one size, the witness cosigns only one history.
func TestRace(t *testing.T) {
	l := newTestLog(t, "example.com/log")
	dir, _ := newWitness(t, "w")
	url, _ := start(t, dir, l.key)
	forks := make([]*testLog, 16)
	for i := range forks {
		forks[i] = l.fork()
		forks[i].add(t, fmt.Sprint("entry ", i))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for _, f := range forks {
		body := f.request(t, 0, 1)
		wg.Go(func() {
			resp, err := http.Post(url+"/add-checkpoint", "", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			io.Copy(io.Discard, resp.Body)
			mu.Lock()
			defer mu.Unlock()
			if resp.StatusCode == http.StatusOK {
				won++
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d of %d histories were cosigned", won, len(forks))
	}
}

func TestLogRotation(t *testing.T) {
	old := newTestLog(t, "example.com/log")
	next := newTestLog(t, "example.com/log")
	dir, v := newWitness(t, "w")
	url, stop := start(t, dir, old.key)
	old.add(t, "a", "b")
	cosigned(t, post(t, url, old.request(t, 0, 1)), old.checkpoint(t, 1), v)
	stop()
	url, stop = start(t, dir, old.key, next.key)
	thief := *old // has the old key, and the log's entries
	old.signer = next.signer
	cosigned(t, post(t, url, old.request(t, 1, 2)), old.checkpoint(t, 2), v)
	cosigned(t, post(t, url, thief.request(t, 2, 2)), thief.checkpoint(t, 2), v)
	stop()
	url, _ = start(t, dir, next.key)
	cosigned(t, post(t, url, old.request(t, 2, 2)), old.checkpoint(t, 2), v)
	refused(t, post(t, url, thief.request(t, 2, 2)), http.StatusForbidden)
}

// TestState: a witness accepts only a state that it has signed.
func TestState(t *testing.T) {
	l := newTestLog(t, "example.com/log")
	dir, _ := newWitness(t, "w")
	signer, verifier, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	conf := Config{Dir: dir, Signer: signer, Verifier: verifier, Logs: []note.Verifier{l.key}}
	url, stop := start(t, dir, l.key)
	if _, err := New(conf); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second one over the same state: %v", err)
	}
	l.add(t, "a", "b", "c")
	if r := post(t, url, l.request(t, 0, 3)); r.status != 200 {
		t.Fatal(r)
	}
	stop()
	path := statePath(dir, l.name)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), good...)
	flipped[len(flipped)-10] ^= 1
	for name, data := range map[string][]byte{
		"empty": nil, "torn": good[:len(good)/2], "flipped": flipped,
		"smaller": []byte(strings.Replace(string(good), "\n3\n", "\n1\n", 1)), "not cosigned": l.checkpoint(t, 3),
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if w, err := New(conf); !errors.Is(err, ErrState) {
			t.Errorf("%s state: %v", name, err)
			if err == nil {
				w.Close()
			}
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	other := newTestLog(t, "example.com/other")
	if err := os.Rename(path, statePath(dir, other.name)); err != nil {
		t.Fatal(err)
	}
	conf.Logs = []note.Verifier{other.key}
	if _, err := New(conf); !errors.Is(err, ErrState) {
		t.Errorf("another log's state: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, stateDir)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(conf); !errors.Is(err, ErrState) {
		t.Errorf("no state at all: %v", err)
	}
}

// TestClock: a cosignature states that no larger checkpoint was seen until its time, so the time must not go back.
func TestClock(t *testing.T) {
	l := newTestLog(t, "example.com/log")
	dir, _ := newWitness(t, "w")
	signer, verifier, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Config{Dir: dir, Signer: signer, Verifier: verifier, Logs: []note.Verifier{l.key}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	l.add(t, "a", "b")
	if _, err := w.add(t.Context(), []byte(l.request(t, 0, 1))); err != nil {
		t.Fatal(err)
	}
	w.logs[l.name].last.at = w.logs[l.name].last.at.Add(1e12) // as if the clock had been ahead until now
	if line, err := w.add(t.Context(), []byte(l.request(t, 1, 2))); err == nil || !strings.Contains(err.Error(), "clock") {
		t.Errorf("cosigned %q: %v", line, err)
	}
}

// TestUnwritable: a witness does not cosign what it cannot store.
func TestUnwritable(t *testing.T) {
	l := newTestLog(t, "example.com/log")
	dir, v := newWitness(t, "w")
	url, _ := start(t, dir, l.key)
	l.add(t, "a", "b")
	tmp := statePath(dir, l.name) + ".tmp"
	if err := os.Mkdir(tmp, 0o700); err != nil { // makes the write fail, also for root
		t.Fatal(err)
	}
	refused(t, post(t, url, l.request(t, 0, 1)), http.StatusInternalServerError)
	if err := os.Remove(tmp); err != nil {
		t.Fatal(err)
	}
	cosigned(t, post(t, url, l.request(t, 0, 2)), l.checkpoint(t, 2), v)
}

func TestGenerate(t *testing.T) {
	dir, _ := newWitness(t, "example.com/w")
	if _, err := Generate(dir, "example.com/w"); err == nil {
		t.Error("a witness was made over another")
	}
	for _, name := range []string{"", "a b", "a+b", "a\n"} {
		if _, err := Generate(t.TempDir(), name); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
	info, err := os.Stat(filepath.Join(dir, KeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v %v", info.Mode(), err)
	}
}

func TestLimiter(t *testing.T) {
	l, err := newLimiter(1)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		from string
		want bool
	}{
		{"192.0.2.1:1", true}, {"192.0.2.1:2", true}, {"192.0.2.1:3", false}, {"192.0.2.2:1", true},
		{"[2001:db8::1]:1", true}, {"[2001:db8::2]:1", true}, {"[2001:db8::3]:1", false}, {"[2001:db8:0:1::1]:1", true},
		{"[::ffff:192.0.2.1]:9", false}, {"", true}, {"pipe", true}, {"?", false},
	} {
		if got := l.allow(c.from); got != c.want {
			t.Errorf("request %d from %s: %v", i, c.from, got)
		}
	}
	for i := range 2 * addresses {
		l.allow(fmt.Sprintf("10.%d.%d.1:1", i/256, i%256))
	}
	if n := l.seen.Len(); n > addresses {
		t.Errorf("%d addresses are remembered", n)
	}
}

func TestTooManyRequests(t *testing.T) {
	l := newTestLog(t, "example.com/log")
	dir, _ := newWitness(t, "w")
	signer, verifier, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Config{Dir: dir, Signer: signer, Verifier: verifier, Logs: []note.Verifier{l.key}, PerSecond: 0.001})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	url := serveFor(t, w)
	if r := post(t, url, "x"); r.status != http.StatusBadRequest {
		t.Error(r)
	}
	if r := post(t, url, "x"); r.status != http.StatusTooManyRequests {
		t.Error(r)
	}
}

func serveFor(t *testing.T, w *Witness) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listener := loopback(t)
	done := make(chan error, 1)
	go func() { done <- w.Serve(ctx, listener, nil) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}
