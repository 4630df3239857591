package hostd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrusted: the worker gets the certificates that the environment names, wherever they are, and no file that only root can read.
func TestTrusted(t *testing.T) {
	dir := t.TempDir()
	public, private, link := filepath.Join(dir, "public"), filepath.Join(dir, "private"), filepath.Join(dir, "link")
	for path, mode := range map[string]os.FileMode{public: 0o644, private: 0o600} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(public, link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file, dirs string
		binds      []string
		env        string
		err        string
	}{
		"none":                {},
		"a file":              {file: public, binds: []string{public}, env: "SSL_CERT_FILE=" + public},
		"a link":              {file: link, binds: []string{public}, env: "SSL_CERT_FILE=" + public},
		"directories":         {dirs: "/usr/share:/usr/lib", binds: []string{"/usr/share", "/usr/lib"}, env: "SSL_CERT_DIR=/usr/share:/usr/lib"},
		"in a standard place": {dirs: "/etc/ssl/certs", env: "SSL_CERT_DIR=/etc/ssl/certs"},
		"missing":             {file: "/none", env: "SSL_CERT_FILE=/none"},
		"private":             {file: private, err: "must be readable by every user"},
	} {
		t.Run(name, func(t *testing.T) {
			binds, env, err := Trusted(func(key string) string {
				return map[string]string{"SSL_CERT_FILE": c.file, "SSL_CERT_DIR": c.dirs}[key]
			})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v; want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var added []string
			for _, b := range binds[len(certificates):] {
				added = append(added, b.Path)
			}
			if strings.Join(added, " ") != strings.Join(c.binds, " ") || strings.Join(env, " ") != c.env {
				t.Errorf("binds %q, environment %q", added, env)
			}
		})
	}
}
