package host

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// Trusted is what the user accepted of a project file: its digest, and the digests of the host's files that it
// names. It applies to one path.
type Trusted struct {
	Path   string `json:"path"`   // of the project file, absolute
	SHA256 string `json:"sha256"` // of its bytes, in hexadecimal
	// Files are the existing files that its commands name, by absolute path: HMAC-SHA256 of their bytes with
	// the host's tag key, because a plain digest would let readers guess values in the files.
	Files map[string]string `json:"files"`
}

// Read reads the files that the commands of a project file name. sum is the project file's digest.
func (ts TrustStore) Read(path, sum string, named []string) (Trusted, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Trusted{}, err
	}
	key, err := ts.host.TagKey()
	if err != nil {
		return Trusted{}, err
	}
	t := Trusted{Path: abs, SHA256: sum, Files: map[string]string{}}
	for _, name := range named {
		if name, err = filepath.Abs(name); err != nil {
			return Trusted{}, err
		}
		switch sum, err := digestOf(name, key); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoFile):
		case err != nil:
			return Trusted{}, fmt.Errorf("read a file that %s names: %w", path, err)
		default:
			t.Files[name] = sum
		}
	}
	return t, nil
}

var errNoFile = errors.New("not a regular file")

func digestOf(path string, key []byte) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errNoFile
	}
	f, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := hmac.New(sha256.New, key)
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// Changed returns the first file of t that differs from the accepted state: the project file, a file that it names, or "" if
// none differs. ok is false if the user accepted nothing for that path.
func (ts TrustStore) Changed(t Trusted) (what string, ok bool) {
	b, err := regular.ReadFile(ts.file(t.Path))
	var was Trusted
	if err != nil || json.Unmarshal(b, &was) != nil || was.Path != t.Path {
		return "", false
	}
	if was.SHA256 != t.SHA256 {
		return t.Path, true
	}
	for name, sum := range t.Files {
		if was.Files[name] != sum {
			return name, true
		}
	}
	for name := range was.Files {
		if _, still := t.Files[name]; !still {
			return name, true
		}
	}
	return "", true
}

// Accept stores t as accepted.
func (ts TrustStore) Accept(ctx context.Context, t Trusted) error {
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	path := ts.file(t.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := flock.Lock(ctx, dir, unix.LOCK_EX); err != nil { // one writer at a time
		return err
	}
	if err := durable.Replace(path, b, 0o600); err != nil {
		return fmt.Errorf("store the accepted project file: %w", err)
	}
	return nil
}

// Forget removes the acceptance of a path.
func (t TrustStore) Forget(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	return os.Remove(t.file(abs))
}

func (t TrustStore) file(path string) string {
	return t.host.path("trusted", fmt.Sprintf("%x", sha256.Sum256([]byte(path))))
}
