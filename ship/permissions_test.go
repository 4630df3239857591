package ship

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// nkey writes a user's seed and returns its file and public key.
func nkey(t testing.TB) (path, public string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if public, err = pair.PublicKey(); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "user.nk")
	if err := os.WriteFile(path, append(seed, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, public
}

// fleet is a server with the users and permissions of the documentation, testdata/accounts.conf.
type fleet struct {
	*natsServer
	host, rival, ingest, watch, nothing string // files with seeds
}

func startFleet(t testing.TB) *fleet {
	t.Helper()
	f := &fleet{}
	accounts, err := os.ReadFile("testdata/accounts.conf")
	if err != nil {
		t.Fatal(err)
	}
	conf := string(accounts)
	for name, path := range map[string]*string{"$HOST_ACME_H1": &f.host, "$HOST_RIVAL_H9": &f.rival, "$INGEST": &f.ingest, "$WATCH_ACME": &f.watch} {
		var public string
		*path, public = nkey(t)
		conf = strings.ReplaceAll(conf, name, public)
	}
	var public string
	f.nothing, public = nkey(t)
	conf = strings.Replace(conf, "users: [", fmt.Sprintf(`users: [ { nkey: %s, permissions: { publish: { deny: ">" }, subscribe: ["custody.v1.inbox.>"] } }`, public), 1)
	f.natsServer = startNATS(t, alwaysSync, conf)
	return f
}

// TestConfiguration: the server parses the configuration of the documentation.
func TestConfiguration(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	ca.issue("server", serverCert("127.0.0.1"))
	for _, name := range []string{"nats-server.conf", "accounts.conf"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("/etc/nats"), []byte(ca.dir))
		text = bytes.ReplaceAll(text, []byte("/var/lib/nats"), []byte(dir+"/js"))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(serverBinary(t), "-t", "-c", dir+"/nats-server.conf")
	cmd.Env = os.Environ()
	for _, name := range []string{"HOST_ACME_H1", "HOST_RIVAL_H9", "INGEST", "WATCH_ACME"} {
		_, public := nkey(t)
		cmd.Env = append(cmd.Env, name+"="+public)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestWatcherPermissions: a watcher sees the tail of its tenant's runs, and may ask the store; it may not publish.
func TestWatcherPermissions(t *testing.T) {
	f := startFleet(t)
	ingester(t, f.as(f.ingest, "", ""), openStore(t), IngestOptions{})
	r := dial(t, f.as(f.host, "acme", "h1"))
	tail := r.Tail("acme", "r-1")
	done := make(chan uint64)
	go func() {
		var last uint64
		for frame, err := range Watch(t.Context(), f.as(f.watch, "acme", "watch"), "acme", "r-1") {
			var missed *Missed
			if errors.As(err, &missed) {
				continue
			}
			if err != nil {
				t.Errorf("watch: %v", err)
			}
			if last = frame.Seq; last >= 10 {
				break
			}
		}
		done <- last
	}()
	frames := storetest.Frames("r-1", storetest.Events(10_000))
	for i := 0; ; i++ {
		tail.Publish(t.Context(), frames[i:i+1])
		select {
		case <-done:
		case <-time.After(time.Millisecond):
			continue
		}
		break
	}
	tail.Close()
	w := dial(t, f.as(f.watch, "acme", "watch"))
	if found, err := w.Stored(t.Context(), "acme", "r-1", false); err != nil || len(found) > 0 {
		t.Errorf("%d segments, %v", len(found), err)
	}
	signer, _ := hostKey(t, "h1")
	if err := w.Publish(t.Context(), sealedRun(t, signer, "acme", "watch", "r-1", 10, 10)[0]); !errors.Is(err, ErrDenied) {
		t.Errorf("a watcher publishes: %v", err)
	}
}

func (f *fleet) as(seed, tenant, host string) Config {
	c := f.config()
	c.Tenant, c.Host, c.NKey = tenant, host, seed
	return c
}

// TestPermissions: with the permissions of the documentation every client can do its work, and not another's.
func TestPermissions(t *testing.T) {
	f := startFleet(t)
	signer, _ := hostKey(t, "h1")
	db := openStore(t)
	ingester(t, f.as(f.ingest, "", ""), db, IngestOptions{})
	r := dial(t, f.as(f.host, "acme", "h1"))
	segs := sealedRun(t, signer, "acme", "h1", "r-1", 100, 10)
	send(t, r, segs...)
	if err := drainRemote(t, r, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	wantExactly(t, db, segs)
	if found, err := r.Stored(t.Context(), "acme", "r-1", true); err != nil || len(found) != len(segs) {
		t.Errorf("%d segments, %v", len(found), err)
	}

	thief := dial(t, f.as(f.rival, "rival", "h9"))
	for _, whose := range [][2]string{{"acme", "h1"}, {"acme", "h9"}, {"rival", "h1"}} {
		seg := sealedRun(t, signer, whose[0], whose[1], "r-2", 20, 10)[0]
		if err := thief.Publish(t.Context(), seg); !errors.Is(err, ErrDenied) {
			t.Errorf("publishing as tenant %s, host %s: %v", whose[0], whose[1], err)
		}
	}
	if _, err := thief.Stored(t.Context(), "acme", "r-1", false); !errors.Is(err, ErrDenied) {
		t.Errorf("asking for another tenant's run: %v", err)
	}
	if found, err := thief.Stored(t.Context(), "rival", "r-1", false); err != nil || len(found) > 0 {
		t.Errorf("another tenant's run by its name: %d segments, %v", len(found), err)
	}
	for _, err := range Watch(t.Context(), f.as(f.rival, "rival", "h9"), "acme", "r-1") {
		if !errors.Is(err, ErrDenied) {
			t.Errorf("watching another tenant's run: %v", err)
		}
	}
	own := sealedRun(t, signer, "rival", "h9", "r-3", 20, 10)
	send(t, thief, own...)
	if err := drainRemote(t, thief, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	for range db.Records(t.Context(), store.Query{Run: "r-2"}) {
		t.Fatal("records of a run that no client may publish are in the store")
	}
}

// TestPermissionsBeneath tries operations that this code never does, with the thief's key: the server must deny them.
func TestPermissionsBeneath(t *testing.T) {
	f := startFleet(t)
	ingester(t, f.as(f.ingest, "", ""), openStore(t), IngestOptions{})
	dial(t, f.as(f.host, "acme", "h1"))
	login, err := nats.NkeyOptionFromSeed(f.rival)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	denied := map[string]bool{}
	conn := f.conn(login, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		mu.Lock()
		defer mu.Unlock()
		if m := violation.FindStringSubmatch(err.Error()); m != nil {
			denied[m[2]] = true
		}
	}))
	publish := []string{segmentRoot + "acme.h1.r-1", refusedRoot + "acme", storedRoot + "acme.h1", tailRoot + "acme.r-1", inboxRoot + "acme.h1.x",
		"$JS.API.STREAM.DELETE.CUSTODY", "$JS.API.STREAM.PURGE.CUSTODY", "$JS.API.STREAM.MSG.DELETE.CUSTODY", "$JS.API.STREAM.MSG.GET.CUSTODY", "$JS.API.STREAM.UPDATE.CUSTODY",
		"$JS.API.CONSUMER.CREATE.CUSTODY.x", "$JS.API.CONSUMER.MSG.NEXT.CUSTODY.ingest", "$JS.ACK.CUSTODY.ingest.1.1.1.1.1", "$JS.API.STREAM.CREATE.THIEF"}
	subscribe := []string{">", segmentRoot + ">", tailRoot + "acme.r-1", askRoot + "acme", inboxRoot + "acme.h1.>", storedRoot + "acme.h1", refusedRoot + ">"}
	for _, s := range publish {
		if err := conn.Publish(s, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range subscribe {
		if _, err := conn.SubscribeSync(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, s := range append(publish, subscribe...) {
		if err := waitFor(t, func() error {
			mu.Lock()
			defer mu.Unlock()
			if !denied[s] {
				return fmt.Errorf("%s is not denied", s)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

func TestNKey(t *testing.T) {
	f := startFleet(t)
	stranger, _ := nkey(t)
	wantHint(t, f.as(stranger, "acme", "h1"), "credentials")
	wantHint(t, f.as("", "acme", "h1"), "credentials")
	wantHint(t, f.as(f.dir+"/nats.conf", "acme", "h1"), "NKey seed")
	if err := os.Chmod(f.host, 0o644); err != nil {
		t.Fatal(err)
	}
	wantHint(t, f.as(f.host, "acme", "h1"), "chmod 600")
}

// TestNoPermission: a host without permissions gets an error when it publishes, an ingester when it starts.
func TestNoPermission(t *testing.T) {
	f := startFleet(t)
	signer, _ := hostKey(t, "h1")
	r := dial(t, f.as(f.nothing, "acme", "h1"))
	err := r.Publish(t.Context(), sealedRun(t, signer, "acme", "h1", "r-1", 10, 10)[0])
	if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "custody.v1.segment.acme.h1.r-1") {
		t.Errorf("Publish: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := Ingest(ctx, f.as(f.nothing, "", ""), openStore(t), IngestOptions{}); !errors.Is(err, ErrDenied) {
		t.Errorf("Ingest: %v", err)
	}
	// A host that uses another host's inbox gets no answers.
	r = dial(t, f.as(f.host, "acme", "h1"))
	r.Close()
	if _, err := Dial(ctx, f.as(f.host, "acme", "h2")); err != nil && !errors.Is(err, ErrDenied) {
		t.Errorf("with another host's name: %v", err)
	}
}

// TestMissingStream: a client that may look up the stream but not create it gets an error with that cause.
func TestMissingStream(t *testing.T) {
	seed, public := nkey(t)
	s := startNATS(t, alwaysSync, fmt.Sprintf(`accounts { CUSTODY { jetstream: enabled, users: [ { nkey: %s, permissions: {
		publish: ["$JS.API.STREAM.INFO.CUSTODY"], subscribe: ["custody.v1.inbox.>"] } } ] } }`, public))
	c := s.config()
	c.NKey = seed
	wantHint(t, c, "missing", "custody ingest", "$JS.API.STREAM.CREATE.CUSTODY")
}

// TestJWT: a server in operator mode, an account and a user with the host's permissions in a credentials file.
func TestJWT(t *testing.T) {
	operator, account, user := pair(t, nkeys.CreateOperator), pair(t, nkeys.CreateAccount), pair(t, nkeys.CreateUser)
	oc := jwt.NewOperatorClaims(operator.public)
	system := pair(t, nkeys.CreateAccount)
	oc.SystemAccount = system.public
	ac := jwt.NewAccountClaims(account.public)
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
	uc := jwt.NewUserClaims(user.public)
	uc.IssuerAccount = ""
	uc.Permissions.Pub.Allow.Add("custody.v1.segment.acme.h1.*", "custody.v1.ask.acme", "$JS.API.STREAM.INFO.CUSTODY", "$JS.API.STREAM.CREATE.CUSTODY")
	uc.Permissions.Sub.Allow.Add("custody.v1.inbox.acme.h1.>", "custody.v1.stored.acme.h1")
	expired := jwt.NewUserClaims(user.public)
	expired.Expires = time.Now().Add(-time.Hour).Unix()

	conf := fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %s, %s: %s }\n", sign(t, oc, operator), system.public,
		account.public, sign(t, ac, operator), system.public, sign(t, jwt.NewAccountClaims(system.public), operator))
	s := startNATS(t, alwaysSync, conf)
	creds := func(claims *jwt.UserClaims, seed []byte) string {
		text, err := jwt.FormatUserConfig(sign(t, claims, account), user.seed)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, user.seed, seed, 1)
		path := filepath.Join(t.TempDir(), "user.creds")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := s.config()
	c.Creds = creds(uc, user.seed)
	r := dial(t, c)
	signer, _ := hostKey(t, "h1")
	send(t, r, sealedRun(t, signer, "acme", "h1", "r-1", 40, 10)...)
	if err := r.Publish(t.Context(), sealedRun(t, signer, "rival", "h1", "r-1", 40, 10)[0]); !errors.Is(err, ErrDenied) {
		t.Errorf("publishing for another tenant: %v", err)
	}
	c.Creds = creds(expired, user.seed)
	wantHint(t, c, "credentials")
	c.Creds = creds(uc, pair(t, nkeys.CreateUser).seed) // another's key
	wantHint(t, c, "credentials")
}

type keyPair struct {
	nkeys.KeyPair
	public string
	seed   []byte
}

func pair(t testing.TB, create func() (nkeys.KeyPair, error)) keyPair {
	t.Helper()
	k, err := create()
	if err != nil {
		t.Fatal(err)
	}
	public, err := k.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := k.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return keyPair{k, public, seed}
}

func sign(t testing.TB, claims jwt.Claims, by keyPair) string {
	t.Helper()
	token, err := claims.Encode(by)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
