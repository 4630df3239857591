package archive_test

import (
	"bytes"
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/export/exporttest"
	"github.com/custody-project/custody/state/archive"
	"github.com/custody-project/custody/state/archive/dir"
	"github.com/custody-project/custody/state/archive/s3"
)

const (
	bucket = "paused"
	secret = "s3cret-of-the-test"
)

// server is versitygw, a real S3 server.
type server struct {
	addr, root string
	tls        *tls.Config
}

// start starts a server with these arguments for its storage.
func start(t testing.TB, secure bool, args ...string) *server {
	t.Helper()
	program := os.Getenv("CUSTODY_TEST_S3")
	if program == "" {
		out, err := exec.Command("../../hack/build-s3").Output()
		if err != nil {
			t.Fatalf("hack/build-s3: %v", err)
		}
		program = strings.TrimSpace(string(out))
	}
	s := &server{addr: freeAddr(t), root: t.TempDir()}
	global := []string{"--port", s.addr, "--access", "AKIDTEST", "--secret", secret, "--region", "us-east-1", "--quiet"}
	if secure {
		certs := exporttest.NewCerts(t.(*testing.T))
		global = append(global, "--cert", certs.Cert, "--key", certs.Key)
		s.tls = &tls.Config{RootCAs: certs.Pool}
	}
	must(t, os.Mkdir(filepath.Join(s.root, bucket), 0o700))
	cmd := exec.Command(program, append(append(append(global, "posix", "--sidecar", t.TempDir()), args...), s.root)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	must(t, cmd.Start())
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

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func (s *server) options() s3.Options {
	return s3.Options{Endpoint: s.addr, Bucket: bucket, Prefix: "custody/prod", TLS: s.tls, Access: "AKIDTEST", Secret: func() (string, error) { return secret, nil }}
}

func (s *server) bucket(t testing.TB) *s3.Bucket { return newBucket(t, s.options()) }

func newBucket(t testing.TB, o s3.Options) *s3.Bucket {
	t.Helper()
	b, err := s3.New(o)
	must(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// storages calls f with each storage.
func storages(t *testing.T, f func(t *testing.T, o archive.Objects)) {
	t.Run("dir", func(t *testing.T) {
		d, err := dir.New(filepath.Join(t.TempDir(), "archive"))
		must(t, err)
		f(t, d)
	})
	t.Run("s3", func(t *testing.T) { f(t, start(t, false).bucket(t)) })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
