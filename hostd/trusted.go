package hostd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/vmm/confine"
)

// certificates are the directories in which distributions have CA certificates.
var certificates = []string{"/etc/ssl/certs", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/etc/pki/tls"}

// Trusted returns the host's CA certificates, for a worker that speaks TLS, and the variables that name others: SSL_CERT_FILE and
// SSL_CERT_DIR, with their meaning in crypto/x509.
func Trusted(getenv func(string) string) (binds []confine.Bind, env []string, err error) {
	add := func(path string, optional bool) {
		binds = append(binds, confine.Bind{Path: path, Flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, Optional: optional})
	}
	for _, path := range certificates {
		add(path, true)
	}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		var paths []string
		for _, path := range filepath.SplitList(getenv(name)) {
			real, err := readable(path)
			switch {
			case errors.Is(err, fs.ErrNotExist): // crypto/x509 ignores it
				real = path
			case err != nil:
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			case !slices.ContainsFunc(certificates, func(dir string) bool { return real == dir || strings.HasPrefix(real, dir+"/") }):
				add(real, false)
			}
			paths = append(paths, real)
		}
		if len(paths) > 0 {
			env = append(env, name+"="+strings.Join(paths, string(filepath.ListSeparator)))
		}
	}
	return binds, env, nil
}

// readable returns the absolute path of a file or directory without symbolic links. Every user must be able to read it.
func readable(path string) (string, error) {
	real, err := filepath.Abs(path)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	need := os.FileMode(0o004)
	if info.IsDir() {
		need = 0o005
	}
	if info.Mode()&need != need {
		return "", fmt.Errorf("%s must be readable by every user (chmod a+r): a process without privileges reads it", real)
	}
	return real, nil
}
