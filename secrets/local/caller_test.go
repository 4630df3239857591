package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandsNotAsRoot: the command of a cmd: source does not run as root, for any caller.
func TestCommandsNotAsRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("this test needs root: only root can run a command as another user")
	}
	dir := t.TempDir()
	theirs, roots := filepath.Join(dir, "theirs.yaml"), filepath.Join(dir, "roots.yaml")
	for _, path := range []string{theirs, roots} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(theirs, 2, 2); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ sudo, file, configured, want string }{
		"sudo":                             {"65534", roots, "", "65534 nobody"},
		"sudo before the owner":            {"65534", theirs, "", "65534 nobody"},
		"root, another's file":             {"", theirs, "", "2 bin"},
		"root by sudo, another's file":     {"0", theirs, "", "2 bin"},
		"the host's choice comes first":    {"65534", theirs, "daemon", "1 daemon"},
		"the host's choice for root":       {"", roots, "daemon", "1 daemon"},
		"root and its own file":            {"", roots, "", ""},
		"root by sudo and its own file":    {"0", roots, "", ""},
		"no file":                          {"", filepath.Join(dir, "none"), "", ""},
		"the host's choice cannot be root": {"65534", theirs, "root", ""},
	} {
		t.Run(name, func(t *testing.T) {
			as, err := FindCaller(func(string) string { return c.sudo }, c.file, c.configured)
			if c.want == "" {
				if !errors.Is(err, ErrRoot) {
					t.Fatalf("%+v, %v", as, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := Resolve(t.Context(), `cmd:echo "$(id -u) $USER $LOGNAME"; id -u | sed s/^/effective:/; echo "home:$HOME groups:$(id -G)"`, "/", as)
			uid, user, _ := strings.Cut(c.want, " ")
			if err != nil || !strings.HasPrefix(string(got), c.want+" "+user+"\neffective:"+uid+"\n") || strings.Contains(string(got), "home:/root ") {
				t.Errorf("%s, %v", got, err)
			}
			if _, rest, _ := strings.Cut(string(got), "groups:"); strings.HasPrefix(rest+" ", "0 ") || strings.Contains(rest+" ", " 0 ") {
				t.Errorf("the command has root's group: %s", rest)
			}
		})
	}
	for _, sudo := range []string{"nobody", "-1", "4294967295", "99999"} { // no such users
		if as, err := FindCaller(func(string) string { return sudo }, roots, ""); err == nil {
			t.Errorf("SUDO_UID=%s: %+v", sudo, as)
		}
	}
}
