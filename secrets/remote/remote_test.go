package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a Server with the brokers of this host, connected to Brokers.
type rig struct {
	server   *Server
	brokers  map[string]secrets.Broker
	bindings map[string]secrets.Binding
}

func newRig(t *testing.T, more map[string]secrets.Broker, bindings ...secrets.Binding) *rig {
	t.Helper()
	here := map[string]secrets.Broker{"file": local.Broker{}, "cmd": local.Broker{}, "env": local.Broker{}}
	for scheme, b := range more {
		here[scheme] = b
	}
	r := &rig{bindings: map[string]secrets.Binding{}}
	for _, b := range bindings {
		r.bindings[b.Name] = b
	}
	r.server = NewServer("r-1", t.TempDir(), bindings, here)
	r.brokers = New(privseptest.Connect(t, r.server.Handlers()), r.server.Brokers())
	t.Cleanup(func() { must(t, r.server.Close(context.Background())) })
	return r
}

// request is a request for secrets by name.
func (r *rig) request(names ...string) secrets.Request {
	req := secrets.Request{Run: "r-1", Step: "main", Limit: time.Hour}
	for _, n := range names {
		req.Bindings = append(req.Bindings, r.bindings[n])
	}
	return req
}

// TestMint: values, lifetime, renewal and revocation of a grant of another process are those of its broker.
func TestMint(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<10)
	path := filepath.Join(t.TempDir(), "large")
	must(t, os.WriteFile(path, []byte(large), 0o600))
	bindings := []secrets.Binding{{Name: "printed", From: "cmd:printf hunter2hunter2"}}
	names := []string{"printed"}
	for i := range 8 { // together more than a message
		names = append(names, fmt.Sprint("large", i))
		bindings = append(bindings, secrets.Binding{Name: names[i+1], From: "file:" + path})
	}
	r := newRig(t, nil, bindings...)
	g, err := r.brokers["file"].Mint(t.Context(), r.request(names...))
	must(t, err)
	values := g.Values()
	if len(values) != 9 || string(values["large7"]) != large || string(values["printed"]) != "hunter2hunter2" {
		t.Errorf("%d values, %d bytes, %q", len(values), len(values["large7"]), values["printed"])
	}
	if left := time.Until(g.Expires()); left <= secrets.TTL-20*time.Second || left > secrets.TTL {
		t.Errorf("it lives for %s", left)
	}
	before := g.Expires()
	must(t, g.Renew(t.Context()))
	if !g.Expires().After(before) || g.Misuse() != nil || g.Leases() != 0 || g.Accessor() == "" {
		t.Errorf("%+v", g)
	}
	must(t, g.Revoke(t.Context()))
	must(t, g.Revoke(t.Context()))
	if len(g.Values()) > 0 {
		t.Error("a revoked grant has values")
	}
	if err := g.Renew(t.Context()); err == nil {
		t.Error("a revoked grant was renewed")
	}
}

// TestRead: values that can be read without minting are read once, and errors belong to their secrets.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "value")
	must(t, os.WriteFile(path, []byte("hunter2hunter2"), 0o600))
	r := newRig(t, nil, secrets.Binding{Name: "file", From: "file:" + path}, secrets.Binding{Name: "dir", From: "file:" + filepath.Dir(path)},
		secrets.Binding{Name: "absent", From: "env:CUSTODY_TEST_ABSENT"}, secrets.Binding{Name: "printed", From: "cmd:exit 1"})
	values, errs := r.brokers["file"].(secrets.Reader).ReadValues(r.request("file", "dir", "absent", "printed"))
	want, wantErrs := local.Broker{}.ReadValues(r.request("file", "dir", "absent", "printed"))
	if fmt.Sprint(values) != fmt.Sprint(want) || fmt.Sprint(errs) != fmt.Sprint(wantErrs) {
		t.Errorf("got %v %v, want %v %v", values, errs, want, wantErrs)
	}
}

// slow is a broker whose minting takes until release is closed, and whose grants report misuse.
type slow struct {
	release chan struct{}
	mu      sync.Mutex // guards grants
	grants  []*slowGrant
}

func (s *slow) Name() string { return "slow" }

func (s *slow) Mint(ctx context.Context, r secrets.Request) (secrets.Grant, error) {
	select {
	case <-s.release:
	case <-ctx.Done():
	}
	g := &slowGrant{misuse: make(chan string, 1), revoked: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants = append(s.grants, g)
	return g, nil
}

type slowGrant struct {
	misuse  chan string
	once    sync.Once
	revoked chan struct{}
}

func (g *slowGrant) Values() map[string][]byte {
	return map[string][]byte{"s": []byte("hunter2hunter2")}
}
func (g *slowGrant) Accessor() string      { return "accessor" }
func (g *slowGrant) Leases() int           { return 1 }
func (g *slowGrant) Expires() time.Time    { return time.Now().Add(time.Minute) }
func (g *slowGrant) Misuse() <-chan string { return g.misuse }
func (g *slowGrant) Renew(context.Context) error {
	return fmt.Errorf("%w: 403", secrets.ErrLost)
}

func (g *slowGrant) Revoke(context.Context) error {
	g.once.Do(func() {
		close(g.revoked)
		close(g.misuse)
	})
	return nil
}

// TestLate: what is granted after the caller has given up is revoked, also if the worker ends meanwhile.
func TestLate(t *testing.T) {
	for name, giveUp := range map[string]func(r *rig, cancel func()){
		"caller": func(_ *rig, cancel func()) { cancel() },
		"worker": func(r *rig, _ func()) { must(t, r.server.Close(context.Background())) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &slow{release: make(chan struct{})}
			r := newRig(t, map[string]secrets.Broker{"slow": s}, secrets.Binding{Name: "s", From: "slow:x"})
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := r.brokers["slow"].Mint(ctx, r.request("s"))
				failed <- err
			}()
			for {
				r.server.mu.Lock()
				minting := len(r.server.grants) == 1
				r.server.mu.Unlock()
				if minting {
					break
				}
				time.Sleep(time.Millisecond)
			}
			giveUp(r, cancel)
			close(s.release)
			if err := <-failed; name == "caller" && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			for {
				s.mu.Lock()
				n := len(s.grants)
				s.mu.Unlock()
				if n == 1 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			<-s.grants[0].revoked
			cancel()
		})
	}
}

// TestMisuse: a broker's report reaches the worker, and a grant that its broker has lost is lost there.
func TestMisuse(t *testing.T) {
	s := &slow{release: make(chan struct{})}
	close(s.release)
	r := newRig(t, map[string]secrets.Broker{"slow": s}, secrets.Binding{Name: "s", From: "slow:x"})
	g, err := r.brokers["slow"].Mint(t.Context(), r.request("s"))
	must(t, err)
	s.grants[0].misuse <- "it was used from elsewhere"
	if what := <-g.Misuse(); what != "it was used from elsewhere" {
		t.Errorf("%q", what)
	}
	if err := g.Renew(t.Context()); !errors.Is(err, secrets.ErrLost) || !strings.Contains(err.Error(), "403") {
		t.Error(err)
	}
	must(t, g.Revoke(t.Context()))
	if what, ok := <-g.Misuse(); ok {
		t.Errorf("after the revocation: %q", what)
	}
}

// TestHostile: a worker gets only the secrets of its run, from their sources.
func TestHostile(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "executed")
	r := newRig(t, nil, secrets.Binding{Name: "mine", From: "cmd:printf hunter2hunter2"})
	c := r.brokers["cmd"].(*broker).conn
	mint := func(id uint64, broker, step string, limit time.Duration, names ...string) mintCall {
		return mintCall{ID: id, Broker: broker, Step: step, Names: names, Limit: limit, Within: time.Minute}
	}
	for what, call := range map[string]mintCall{
		"another secret":  mint(1, "local", "main", time.Hour, "other"),
		"a source":        mint(2, "local", "main", time.Hour, "cmd:touch "+marker),
		"the same twice":  mint(3, "local", "main", time.Hour, "mine", "mine"),
		"another broker":  mint(4, "vault", "main", time.Hour, "mine"),
		"nothing":         mint(5, "local", "main", time.Hour),
		"a negative time": mint(6, "local", "main", -1, "mine"),
		"a long step":     mint(7, "local", strings.Repeat("x", 4096), time.Hour, "mine"),
	} {
		if _, err := c.Call(t.Context(), callMint, call, nil); err == nil {
			t.Errorf("%s was granted", what)
		}
	}
	if _, err := c.Call(t.Context(), callMint, mint(8, "local", "main", 1000*time.Hour, "mine"), nil); err != nil {
		t.Error(err)
	}
	if _, err := c.Call(t.Context(), callMint, mint(8, "local", "main", time.Hour, "mine"), nil); err == nil {
		t.Error("one number stands for two grants")
	}
	for _, name := range []string{callRenew, callMisuse} {
		if _, err := c.Call(t.Context(), name, grantCall{99, time.Minute}, nil); err == nil {
			t.Errorf("%s of an unknown grant succeeded", name)
		}
	}
	if _, err := os.Lstat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a command of the worker's was executed: %v", err)
	}
	for i := range maxGrants + 10 {
		_, err := c.Call(t.Context(), callMint, mint(uint64(100+i), "local", "main", time.Hour, "mine"), nil)
		if want := i >= maxGrants-1; (err != nil) != want {
			t.Fatalf("grant %d: %v", i, err)
		}
	}
}
