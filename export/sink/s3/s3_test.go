package s3

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/export/sink/peer"
)

const bucket = "siem"

// server is versitygw, a real S3 server, on a directory: an object is a file there.
type server struct {
	addr, dir string
	certs     exporttest.Certs
}

// start runs the program that hack/build-s3 builds, which takes a while the first time.
func start(t *testing.T, secure bool) *server {
	t.Helper()
	program := os.Getenv("CUSTODY_TEST_S3")
	if program == "" {
		out, err := exec.Command("../../../hack/build-s3").Output()
		if err != nil {
			t.Fatalf("hack/build-s3: %v", err)
		}
		program = strings.TrimSpace(string(out))
	}
	s := &server{addr: freeAddr(t), dir: t.TempDir()}
	args := []string{"--port", s.addr, "--access", "AKIDTEST", "--secret", "s3cret", "--region", "us-east-1", "--quiet"}
	if secure {
		s.certs = exporttest.NewCerts(t)
		args = append(args, "--cert", s.certs.Cert, "--key", s.certs.Key)
	}
	if err := os.Mkdir(filepath.Join(s.dir, bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(args, "posix", "--sidecar", t.TempDir(), s.dir)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			c.Close()
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("the server does not start: %s", said.String())
		}
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *server) options(t *testing.T) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Options{Endpoint: s.addr, Bucket: bucket, Prefix: "custody/prod", Access: "AKIDTEST", Secret: peer.Secret{File: path}}
}

func open(t *testing.T, o Options) *Sink {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// objects reads all objects: their lines by key.
func (s *server) objects(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	root := filepath.Join(s.dir, bucket)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".gz") {
			return nil // being made or removed
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			return err
		}
		var lines []string
		for sc := bufio.NewScanner(z); sc.Scan(); {
			lines = append(lines, sc.Text())
		}
		key, _ := filepath.Rel(root, path)
		all[key] = lines
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ids returns the number of copies of each event in the objects.
func (s *server) ids(t *testing.T) map[string]int {
	ids := map[string]int{}
	for _, lines := range s.objects(t) {
		for _, line := range lines {
			_, rest, _ := strings.Cut(line, `"run":"`)
			run, rest, _ := strings.Cut(rest, `","seq":`)
			seq, _, _ := strings.Cut(rest, ",")
			ids[run+":"+seq]++
		}
	}
	return ids
}

// TestFaults: a repeat writes the same object, so that each event exists once.
func TestFaults(t *testing.T) {
	s := start(t, false)
	o := s.options(t)
	exporttest.Faults(t, s.addr, func(addr string) export.Sink {
		o.Endpoint = addr
		return open(t, o)
	}, func() map[string]int { return s.ids(t) })
	for id, n := range s.ids(t) {
		if n != 1 {
			t.Errorf("%s is in %d objects", id, n)
		}
	}
}

// TestObjects: one object for each segment, under its tenant, day and run.
func TestObjects(t *testing.T) {
	s := start(t, false)
	src := &exporttest.Source{}
	src.Add(exporttest.Run("acme", "r-1", 250, 100)...)
	src.Add(exporttest.Run("", "r-2", 30, 100)...)
	for range 2 { // the second exporter starts again, and writes the same objects
		x, err := export.Open(export.Options{Name: "s3", Dir: t.TempDir(), Source: src, Format: export.JSON{}, Sink: open(t, s.options(t))})
		if err != nil {
			t.Fatal(err)
		}
		if err := x.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.Close()
	}
	var keys []string
	for key := range s.objects(t) {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	want := []string{
		"custody/prod/_/2026/11/03/r-2/00000000000000000001-00000000000000000030.ndjson.gz",
		"custody/prod/acme/2026/11/03/r-1/00000000000000000001-00000000000000000100.ndjson.gz",
		"custody/prod/acme/2026/11/03/r-1/00000000000000000101-00000000000000000200.ndjson.gz",
		"custody/prod/acme/2026/11/03/r-1/00000000000000000201-00000000000000000250.ndjson.gz",
	}
	if !slices.Equal(keys, want) {
		t.Errorf("objects %q", keys)
	}
	if len(s.ids(t)) != 280 {
		t.Errorf("%d events", len(s.ids(t)))
	}
}

func TestTLSAndCredentials(t *testing.T) {
	s := start(t, true)
	for name, change := range map[string]func(*Options){
		"another authority": func(o *Options) { o.TLS = exporttest.NewCerts(t).Client(t) },
		"another secret":    func(o *Options) { o.Secret = peer.Secret{Env: "PATH"} },
		"another bucket":    func(o *Options) { o.Bucket = "else" },
		"":                  func(*Options) {},
	} {
		o := s.options(t)
		o.TLS = &tls.Config{RootCAs: s.certs.Pool}
		change(&o)
		err := open(t, o).Send(t.Context(), exporttest.Items("r-1", 5))
		if (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the secret stands in %q", name, err)
		}
	}
	if len(s.ids(t)) != 5 {
		t.Error(s.ids(t))
	}
}

// TestBusy: no error of a busy or broken server makes the exporter give up an event.
func TestBusy(t *testing.T) {
	for status, code := range map[int]string{503: "SlowDown", 500: "InternalError", 429: "TooManyRequests", 403: "AccessDenied", 404: "NoSuchBucket", 400: "EntityTooLarge"} {
		l := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			w.Write([]byte("<Error><Code>" + code + "</Code><Message>no</Message></Error>"))
		}))
		o := (&server{addr: l.Listener.Addr().String()}).options(t)
		err := open(t, o).Send(t.Context(), exporttest.Items("r-1", 1))
		if _, refused := err.(*export.Refused); err == nil || refused != (code == "EntityTooLarge") {
			t.Errorf("%d %s: %v", status, code, err)
		}
		l.Close()
	}
}

// TestKeys: no name escapes its directory, and different names have different keys.
func TestKeys(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"", "_", "a", "a/b", "a_b", "..", ".", "../../x", "a b", "a\x00b", "ü", "ö", strings.Repeat("x", 128)} {
		k := name(s)
		if other, ok := seen[k]; ok || k == "" || strings.Contains(k, "/") || strings.Trim(k, ".") == "" {
			t.Errorf("%q became %q, as %q", s, k, other)
		}
		seen[k] = s
	}
}
