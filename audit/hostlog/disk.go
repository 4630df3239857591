package hostlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/audit/durable"
)

// makeDir durably makes a directory that only its owner can read.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(parent)
}
