package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
)

// stamp is a file's digest together with the metadata that the file had when the digest was computed. Each
// write, rename or replacement of the file changes the inode or its ctime,
// which no system call can set; the digest is then computed again.
type stamp struct {
	Dev, Ino     uint64
	Size         int64
	Mtime, Ctime unix.Timespec
	SHA256       string
}

// statFile returns the stamp of a file, without its digest.
func statFile(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return stamp{Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mtime: st.Mtim, Ctime: st.Ctim}, nil
}

const stampFile = "verified.json"

// stamps returns the stamps of a template's directory, or none if the file cannot be read.
func stamps(dir string) map[string]stamp {
	all := map[string]stamp{}
	if b, err := regular.ReadFile(filepath.Join(dir, stampFile)); err == nil && json.Unmarshal(b, &all) != nil {
		return map[string]stamp{}
	}
	return all
}

// storeStamp stores the stamp of a file whose digest was just computed.
func storeStamp(dir, key, path, sum string) error {
	now, err := statFile(path)
	if err != nil {
		return err
	}
	now.SHA256 = sum
	all := stamps(dir)
	all[key] = now
	return writeJSON(filepath.Join(dir, stampFile), all)
}

// hasher computes a file's digest: hashFile or hashSparse.
type hasher func(ctx context.Context, path string) (string, error)

// digest returns a file's digest. It takes it from the stamps in dir if the file has not changed since
// the digest was computed.
func digest(ctx context.Context, dir, key, path string, hash hasher) (string, error) {
	now, err := statFile(path)
	if err != nil {
		return "", err
	}
	old := stamps(dir)[key]
	now.SHA256 = old.SHA256
	if now == old && old.SHA256 != "" {
		return old.SHA256, nil
	}
	if now.SHA256, err = hash(ctx, path); err != nil {
		return "", err
	}
	after, err := statFile(path)
	if err != nil {
		return "", err
	}
	after.SHA256 = now.SHA256
	if after != now {
		return "", fmt.Errorf("%s changed while it was being read", path)
	}
	return now.SHA256, storeStamp(dir, key, path, now.SHA256)
}

// hasGuest reports whether the template contains the program at path.
func (t Template) hasGuest(ctx context.Context, path string) (bool, error) {
	sum, err := digest(ctx, t.dir, "guest", path, hashFile)
	if err != nil {
		return false, fmt.Errorf("custody-guest (built by `make build`, beside custody): %w", err)
	}
	return sum == t.Guest, nil
}

// verify checks files of the template against their digests.
func (t Template) verify(ctx context.Context, files ...string) error {
	want := map[string]string{"kernel": t.Kernel, "initrd": t.Initrd, "root.erofs": t.Root}
	for _, name := range files {
		if err := t.verifyFile(ctx, name, want[name], hashFile); err != nil {
			return err
		}
	}
	return nil
}

func (t Template) verifyFile(ctx context.Context, name, want string, hash hasher) error {
	got, err := digest(ctx, t.dir, name, filepath.Join(t.dir, name), hash)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: template %s: %w", ErrBroken, t.Name, err)
	}
	if got != want {
		return fmt.Errorf("%w: template %s: %s has the digest %s, expected %s", ErrBroken, t.Name, name, got, want)
	}
	return nil
}

// hashFile returns a file's SHA-256.
func hashFile(ctx context.Context, path string) (string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h, chunk := sha256.New(), make([]byte, 1<<20)
	for {
		n, err := f.Read(chunk)
		h.Write(chunk[:n])
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return "", err
		}
	}
}

// writeJSON replaces a file atomically.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(b, '\n'))
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func copyFile(from fs.FS, name, to string, mode os.FileMode) error {
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// syncTree makes a directory and its files durable.
func syncTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := syncPath(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func syncPath(path string) error {
	f, err := regular.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
