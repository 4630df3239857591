package hostd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/host"
)

// Publish lets a group read what of a home is not secret to the service: the settings, the public keys and the registered projects. The
// private key and the templates stay readable for the owner only.
func Publish(l host.Layout, gid int) error {
	var errs []error
	give := func(path string, mode os.FileMode) {
		err := os.Chown(path, -1, gid)
		if err == nil {
			err = os.Chmod(path, mode)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, dir := range []string{".", "keys", "keys/old", "projects"} {
		give(filepath.Join(l.Dir, dir), 0o750)
	}
	give(filepath.Join(l.Dir, host.ConfigFile), 0o640)
	return errors.Join(errs...)
}
