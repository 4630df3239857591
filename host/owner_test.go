package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/host"
)

// TestOwner: a home that another user could change or replace is refused before anything in it is read.
func TestOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("only root can make files of other users")
	}
	const other = 1
	chown := func(uid int, names ...string) func(string) error {
		return func(dir string) (err error) {
			for _, name := range names {
				err = errors.Join(err, os.Lchown(filepath.Join(dir, name), uid, uid))
			}
			return err
		}
	}
	chmod := func(mode os.FileMode, name string) func(string) error {
		return func(dir string) error { return os.Chmod(filepath.Join(dir, name), mode) }
	}
	link := func(to, name string, then ...func(string) error) func(string) error {
		return func(dir string) error {
			err := os.Symlink(strings.ReplaceAll(to, "DIR", dir), filepath.Join(dir, name))
			for _, f := range then {
				err = errors.Join(err, f(dir))
			}
			return err
		}
	}
	for what, tt := range map[string]struct {
		change func(dir string) error
		home   string // below dir; default a/home
		sudo   string
		want   string // in the error
	}{
		"of root":                    {func(string) error { return nil }, "", "", ""},
		"not there yet":              {func(string) error { return nil }, "a/new/home", "", ""},
		"of another":                 {chown(other, "a/home"), "", "", "a/home belongs to user 1"},
		"of the user who calls sudo": {chown(other, "a/home", "a"), "", "1", ""},
		"of a user other than the one who calls sudo": {chown(other, "a/home"), "", "2", "a/home belongs to user 1"},
		"in a directory of another":                   {chown(other, "a"), "", "", "/a belongs to user 1"},
		"not there, directory of another":             {chown(other, "a"), "a/new/home", "", "/a belongs to user 1"},
		"can be written by the group":                 {chmod(0o770, "a/home"), "", "", "a/home can be written by others"},
		"can be written by everyone":                  {chmod(0o777, "a/home"), "", "", "a/home can be written by others"},
		"sticky, can be written by everyone":          {chmod(0o777|os.ModeSticky, "a/home"), "", "", "a/home can be written by others"},
		"can be read by everyone":                     {chmod(0o755, "a/home"), "", "", ""},
		"in a directory of everyone":                  {chmod(0o777, "a"), "", "", "/a can be written by others"},
		"in a sticky directory":                       {chmod(0o777|os.ModeSticky, "a"), "", "", ""},
		"link":                                        {link("a/home", "l"), "l", "", ""},
		"link of another":                             {link("a/home", "l", chown(other, "l")), "l", "", "/l belongs to user 1"},
		"link to one of another":                      {link("a/home", "l", chown(other, "a/home")), "l", "", "a/home belongs to user 1"},
		"absolute link to one of another":             {link("DIR/a/home", "l", chown(other, "a/home")), "l", "", "a/home belongs to user 1"},
		"link over a directory of another":            {link("b/../a/home", "l", chown(other, "b")), "l", "", "/b belongs to user 1"},
		"link in a directory of everyone":             {link("../a/home", "b/l", chmod(0o777, "b")), "b/l", "", "/b can be written by others"},
		"link in the middle of another":               {link("a", "l", chown(other, "l")), "l/home", "", "/l belongs to user 1"},
		"chain of links":                              {link("l2", "l", link("a/../l3", "l2", link("DIR/a", "l3", chown(other, "a")))), "l/home", "", "/a belongs to user 1"},
		"loop of links":                               {link("l", "l"), "l/home", "", "too many"},
		"link to its own directory":                   {link(".", "l"), "l/a/home", "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("SUDO_UID", tt.sudo)
			dir := t.TempDir()
			for _, name := range []string{"a/home", "b"} {
				if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := tt.change(dir); err != nil {
				t.Fatal(err)
			}
			if tt.home == "" {
				tt.home = "a/home"
			}
			_, err := host.Open(filepath.Join(dir, tt.home))
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			case tt.want != "":
				if made, err := os.ReadDir(filepath.Join(dir, "a/home")); err != nil || len(made) > 0 {
					t.Errorf("it was used: %v, %v", made, err)
				}
			}
		})
	}
}
