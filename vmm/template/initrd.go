package template

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cavaliergopher/cpio"

	"github.com/custody-project/custody/internal/regular"
)

// writeInitrd writes an initramfs that contains custody-guest as /init, and /modules. The
// order and times of its entries are fixed, so that the same input results in
// the same bytes.
func writeInitrd(path, guest, modules string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	defer f.Close()
	w := cpio.NewWriter(f)
	for _, dir := range []string{"dev", "proc", "sys", "modules"} {
		if err := w.WriteHeader(&cpio.Header{Name: dir, Mode: cpio.TypeDir | 0o755}); err != nil {
			return err
		}
	}
	if err := addFile(w, "init", guest, 0o755); err != nil {
		return fmt.Errorf("custody-guest (built by `make build`, beside custody): %w", err)
	}
	entries, err := os.ReadDir(modules)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := addFile(w, "modules/"+e.Name(), filepath.Join(modules, e.Name()), 0o444); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), f.Sync())
}

func addFile(w *cpio.Writer, name, path string, mode cpio.FileMode) error {
	b, err := regular.ReadFile(path)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeReg | mode, Size: int64(len(b))}); err != nil {
		return err
	}
	_, err = io.Copy(w, bytes.NewReader(b))
	return err
}

// readModules extracts the modules of an initramfs that writeInitrd wrote.
func readModules(initrd, to string) error {
	f, err := regular.Open(initrd)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	r := cpio.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: initrd: %w", ErrBroken, err)
		}
		name, ok := strings.CutPrefix(h.Name, "modules/")
		if !ok || name == "" {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(name)), b, 0o444); err != nil {
			return err
		}
	}
}
