package vault

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain runs, if the environment requests it, the custody process that is killed.
func TestMain(m *testing.M) {
	if text := os.Getenv("VAULT_TEST_VICTIM"); text != "" {
		if err := victim(text); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// victim mints the secrets that its environment names, prints them, and waits to be killed.
func victim(text string) error {
	var c Config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	b, err := Open(context.Background(), c)
	if err != nil {
		return err
	}
	g, err := b.Mint(context.Background(), request("agent", git, "vault:kv/plain", "vault:db/creds/app#password"))
	if err != nil {
		return err
	}
	var accessors []string
	for _, tok := range g.(*grant).all() {
		accessors = append(accessors, tok.accessor)
	}
	if err := json.NewEncoder(os.Stdout).Encode(accessors); err != nil {
		return err
	}
	io.Copy(io.Discard, os.Stdin) // ends with the test at the latest
	return errors.New("it was not killed")
}

// After kill -9 the tokens expire within a minute, and Sweep revokes them immediately.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	c := s.config(t)
	text, err := json.Marshal(c)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "VAULT_TEST_VICTIM="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var accessors []string
	err = json.NewDecoder(stdout).Decode(&accessors)
	cmd.Process.Kill()
	cmd.Wait()
	must(t, err)
	if len(accessors) != 3 {
		t.Fatalf("%d tokens", len(accessors))
	}
	for _, a := range accessors {
		about := s.lookup(t, a)
		if about == nil || about["ttl"].(float64) > 60 {
			t.Errorf("left behind: %v", about)
		}
	}
	if n := notes(t, c.Dir); len(n) != 1 {
		t.Fatalf("notes: %v", n)
	}
	b := opened(t, c)
	must(t, b.Sweep(t.Context(), func(run string) bool { return run == "r-1" }))
	if s.lookup(t, accessors[0]) == nil {
		t.Error("the tokens of a live run were revoked")
	}
	must(t, b.Sweep(t.Context(), func(string) bool { return false }))
	for _, a := range accessors {
		if s.lookup(t, a) != nil {
			t.Error("alive after Sweep")
		}
	}
	if p, n := s.stepPolicies(t), notes(t, c.Dir); len(p)+len(n) != 0 {
		t.Errorf("policies %v, notes %v", p, n)
	}
	must(t, b.Sweep(t.Context(), func(string) bool { return false }))
}

// Sweep after a kill at every possible moment: the note names policies that do not exist yet or tokens that have ended,
// or is a draft.
func TestSweepMoments(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	c := s.config(t)
	b := opened(t, c)
	dead := func(string) bool { return false }

	planned := b.newNote("r-old")
	planned.Policies = []string{policyPrefix + "never-written"}
	must(t, planned.save())
	gone := b.newNote("r-old")
	gone.Accessors = []string{"AAAAAAAAAAAAAAAAAAAAAAAA"}
	must(t, gone.save())
	must(t, b.Sweep(t.Context(), dead))
	if n := notes(t, c.Dir); len(n) != 0 {
		t.Errorf("left: %v", n)
	}

	other := b.newNote("r-old")
	other.Vault = "https://elsewhere.example:8200 "
	must(t, other.save())
	must(t, b.Sweep(t.Context(), dead))
	if n := notes(t, c.Dir); len(n) != 1 {
		t.Error("the note about another Vault was removed")
	}
	must(t, other.remove())

	draft, old := filepath.Join(c.Dir, ".draft-1"+noteSuffix), filepath.Join(c.Dir, ".draft-2"+noteSuffix)
	must(t, os.WriteFile(draft, []byte(`{"va`), 0o600))
	must(t, os.WriteFile(old, []byte(`{"va`), 0o600))
	must(t, os.Chtimes(old, time.Time{}, time.Now().Add(-time.Hour)))
	must(t, b.Sweep(t.Context(), dead))
	if n := notes(t, c.Dir); len(n) != 1 {
		t.Errorf("drafts: %v", n)
	}
	must(t, os.Remove(draft))

	bad := filepath.Join(c.Dir, "bad"+noteSuffix)
	must(t, os.WriteFile(bad, []byte(`{"va`), 0o600))
	must(t, planned.save())
	if err := b.Sweep(t.Context(), dead); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("a bad note: %v", err)
	}
	if n := notes(t, c.Dir); len(n) != 1 {
		t.Errorf("a bad note prevents the sweep of others: %v", n)
	}
	g := minted(t, b, request("agent", git))
	info, err := os.Stat(filepath.Join(c.Dir, g.note.name))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("a note has mode %o", info.Mode().Perm())
	}
	text, err := os.ReadFile(filepath.Join(c.Dir, g.note.name))
	must(t, err)
	for _, tok := range g.all() {
		if strings.Contains(string(text), tok.secret) || strings.Contains(string(text), canary) {
			t.Error("a note has a secret in it")
		}
	}
}

// Vault is killed while a step runs, and restarted.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := prepared(t, "-dir", dir)
	c := s.config(t)
	b := opened(t, c)
	g := minted(t, b, request("agent", git))
	expires := g.Expires()
	s.stop()
	if err := g.Renew(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("renewed without Vault: %v", err)
	}
	if !g.Expires().Equal(expires) {
		t.Error("the expiry changed")
	}
	if _, err := b.Mint(t.Context(), request("next", git)); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("minted without Vault: %v", err)
	}
	if err := g.Revoke(t.Context()); err == nil {
		t.Error("revoked without Vault")
	}
	if err := b.Sweep(t.Context(), func(string) bool { return false }); !errors.Is(err, errGone) {
		t.Errorf("swept without Vault: %v", err)
	}
	if n := notes(t, c.Dir); len(n) != 2 { // the second belongs to the failed mint
		t.Errorf("notes: %v", n)
	}
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("opened without Vault: %v", err)
	}
	u, err := url.Parse(s.Address)
	must(t, err)
	again := start(t, "-dir", dir, "-listen", u.Host)
	if again.lookup(t, g.Accessor()) == nil {
		t.Fatal("Vault has expired the token: there is nothing to revoke")
	}
	must(t, g.Revoke(t.Context()))
	if again.lookup(t, g.Accessor()) != nil {
		t.Error("alive after the revocation")
	}
	must(t, b.Sweep(t.Context(), func(string) bool { return false }))
	if p, n := again.stepPolicies(t), notes(t, c.Dir); len(p)+len(n) != 0 {
		t.Errorf("policies %v, notes %v", p, n)
	}
	minted(t, b, request("next", git))
}

// Errors name a sealed Vault; after it is unsealed the broker works again.
func TestSealed(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	c := s.config(t)
	b := opened(t, c)
	g := minted(t, b, request("agent", git))
	s.root(t, "PUT", "sys/seal", nil)
	_, mint := b.Mint(t.Context(), request("next", git))
	_, open := Open(t.Context(), c)
	for what, err := range map[string]error{"mint": mint, "open": open, "renew": g.Renew(t.Context()), "revoke": g.Revoke(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "sealed") {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.root(t, "PUT", "sys/unseal", map[string]any{"key": s.Unseal})
	for range 100 { // it takes some time to become active
		if err := g.Revoke(t.Context()); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if s.lookup(t, g.Accessor()) != nil {
		t.Error("alive after the revocation")
	}
}

// wire proxies connections to a Vault until it is cut: then it drops all bytes without closing the connections.
type wire struct {
	ln net.Listener

	mu    sync.Mutex // guards the fields below
	isCut bool
	conns []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &wire{ln: ln}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, in, out)
			w.mu.Unlock()
			tasks.Go(func() { w.pass(out, in) })
			tasks.Go(func() { w.pass(in, out) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			c.Close()
		}
		w.mu.Unlock()
		tasks.Wait()
	})
	return w
}

func (w *wire) pass(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			to.Close()
			return
		}
		if !w.lost() {
			to.Write(buf[:n])
		}
	}
}

func (w *wire) lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isCut
}

func (w *wire) cut(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = is
}

// The network to Vault is cut: every call ends in bounded time, with an error that names the cause.
func TestNetworkCut(t *testing.T) {
	t.Parallel()
	s := prepared(t)
	u, err := url.Parse(s.Address)
	must(t, err)
	w := newWire(t, u.Host)
	c := s.config(t)
	c.Address = "http://" + w.ln.Addr().String()
	b := opened(t, c)
	b.client.wait = time.Second // short timeout
	g := minted(t, b, request("agent", git))
	w.cut(true)
	calls := map[string]func() error{
		"renew": func() error { return g.Renew(t.Context()) },
		"mint":  func() error { _, err := b.Mint(t.Context(), request("next", git)); return err },
	}
	var tasks sync.WaitGroup
	for what, call := range calls {
		tasks.Go(func() {
			if err := call(); err == nil || !strings.Contains(err.Error(), "did not answer") {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	tasks.Wait()
	// The caller's deadline ends a call as well, and Revoke does not wait for a Renew.
	renewing := make(chan error, 1)
	go func() { renewing <- g.Renew(t.Context()) }()
	time.Sleep(50 * time.Millisecond)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := g.Revoke(short); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("revoke: %v", err)
	}
	select {
	case err := <-renewing:
		if err == nil {
			t.Error("renewed over a cut network")
		}
	case <-time.After(600 * time.Millisecond):
		t.Error("Revoke does not end a hanging Renew")
	}
	w.cut(false)
	if s.lookup(t, g.Accessor()) == nil {
		t.Fatal("there is nothing left to revoke")
	}
	must(t, g.Revoke(t.Context()))
	if s.lookup(t, g.Accessor()) != nil {
		t.Error("alive after the revocation")
	}
}
