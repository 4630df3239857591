package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var ann = Change{Author: "ann", UID: 1000, Time: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}

// unrecorded is the record of tests that do not look at it.
func unrecorded(Version) error { return nil }

// text is the file of a project that differs by n.
func text(name string, n int) []byte {
	return fmt.Appendf(nil, "version: 1\nproject: %s\nlimits: {pids: %d}\n", name, n+8)
}

func newRegistry(t *testing.T) Registry {
	t.Helper()
	return Registry{Dir: filepath.Join(t.TempDir(), "projects")}
}

func (r Registry) mustApply(t *testing.T, text []byte) Version {
	t.Helper()
	v, _, err := r.Apply(t.Context(), text, ann, unrecorded)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestRegistry: versions are numbered, kept as they were, withdrawn and registered again.
func TestRegistry(t *testing.T) {
	r := newRegistry(t)
	if list, err := r.Projects(); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := r.Current("shop"); !errors.Is(err, ErrUnknown) {
		t.Errorf("before any project: %v", err)
	}
	first := append(text("shop", 1), "# CRLF, and no end of line\r\n#"...)
	if v := r.mustApply(t, first); v.Number != 1 || v.Project != "shop" || v.Digest != digest(first) {
		t.Errorf("%+v", v)
	}
	again, changed, err := r.Apply(t.Context(), first, Change{Author: "ben"}, func(Version) error { return errors.New("recorded") })
	if err != nil || changed || again.Number != 1 || again.Author != "ann" {
		t.Errorf("the same bytes: %+v, %v, %v", again, changed, err)
	}
	second := text("shop", 2)
	r.mustApply(t, second)
	r.mustApply(t, text("other", 1))
	if got, err := r.Current("shop"); err != nil || got.Number != 2 || string(got.Text) != string(second) || got.File.Limits.PIDs != 10 {
		t.Errorf("%+v, %v", got.Version, err)
	}
	if got, err := r.Read("shop", 1); err != nil || string(got.Text) != string(first) {
		t.Errorf("%q, %v", got.Text, err)
	}
	if _, err := r.Read("shop", 3); err == nil || !strings.Contains(err.Error(), "its newest is 2") {
		t.Errorf("a version that does not exist: %v", err)
	}
	list, err := r.Projects()
	if err != nil || len(list) != 2 || list[0].Project != "other" || list[1].Number != 2 || !list[1].Time.Equal(ann.Time) {
		t.Errorf("%+v, %v", list, err)
	}

	if v, err := r.Withdraw(t.Context(), "shop", ann, unrecorded); err != nil || v.Number != 2 {
		t.Errorf("%+v, %v", v, err)
	}
	withdrawn := new(WithdrawnError)
	if _, err := r.Current("shop"); !errors.As(err, &withdrawn) || err.Error() != "the project shop was withdrawn by ann at 2026-11-25T12:00:00Z" {
		t.Errorf("after it was withdrawn: %v", err)
	}
	if _, err := r.Withdraw(t.Context(), "shop", ann, unrecorded); !errors.As(err, &withdrawn) {
		t.Errorf("withdrawn twice: %v", err)
	}
	if v := r.mustApply(t, second); v.Number != 3 {
		t.Errorf("the withdrawn bytes again: %+v", v)
	}
	history, err := r.History("shop")
	if err != nil || len(history) != 3 || history[1].Withdrawn == nil || history[0].Withdrawn != nil || history[2].Withdrawn != nil {
		t.Errorf("%+v, %v", history, err)
	}
}

// TestNotRecorded: what cannot be recorded does not happen.
func TestNotRecorded(t *testing.T) {
	r := newRegistry(t)
	full := errors.New("no room for the record")
	refuse := func(Version) error { return full }
	if _, _, err := r.Apply(t.Context(), text("shop", 1), ann, refuse); !errors.Is(err, full) {
		t.Error(err)
	}
	if _, err := r.Current("shop"); !errors.Is(err, ErrUnknown) {
		t.Errorf("it is registered: %v", err)
	}
	r.mustApply(t, text("shop", 1))
	if _, err := r.Withdraw(t.Context(), "shop", ann, refuse); !errors.Is(err, full) {
		t.Error(err)
	}
	if _, err := r.Current("shop"); err != nil {
		t.Errorf("it is withdrawn: %v", err)
	}
}

// TestNames: a name that no project can have names nothing, wherever it leads.
func TestNames(t *testing.T) {
	r := newRegistry(t)
	r.mustApply(t, text("shop", 1))
	for _, name := range []string{"", ".", "..", "../projects/shop", "shop/", "./shop", "shop\x00", "Shop", "sh_op", strings.Repeat("a", 300), "/etc"} {
		if _, err := r.Current(name); !errors.Is(err, ErrUnknown) {
			t.Errorf("%.20q: %v", name, err)
		}
		if _, err := r.Withdraw(t.Context(), name, ann, unrecorded); !errors.Is(err, ErrUnknown) {
			t.Errorf("withdraw %.20q: %v", name, err)
		}
	}
	for _, name := range []string{"..", "Shop", `"a\0b"`, strings.Repeat("a", 64), "a/b"} {
		if _, _, err := r.Apply(t.Context(), text(name, 1), ann, unrecorded); err == nil {
			t.Errorf("%.20q was registered", name)
		}
	}
}

// TestDamaged: a registry that someone else can change, or has changed, is not used.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"a changed file":            func(dir string) error { return os.WriteFile(dir+"/shop/2.yaml", text("shop", 9), 0o600) },
		"a removed file":            func(dir string) error { return os.Remove(dir + "/shop/2.yaml") },
		"a removed version":         func(dir string) error { return os.Remove(dir + "/shop/1.json") },
		"a version of another name": func(dir string) error { return os.Rename(dir+"/shop", dir+"/other") },
		"another version's file":    func(dir string) error { return os.Rename(dir+"/shop/1.json", dir+"/shop/2.json") },
		"no JSON":                   func(dir string) error { return os.WriteFile(dir+"/shop/2.json", []byte("{"), 0o600) },
		"a number like no other":    func(dir string) error { return os.WriteFile(dir+"/shop/03.json", []byte("{}"), 0o600) },
		"a withdrawal that is none": func(dir string) error { return os.WriteFile(dir+"/shop/2.withdrawn", nil, 0o600) },
		"a FIFO":                    func(dir string) error { return syscall.Mkfifo(dir+"/shop/3.json", 0o600) },
		"a FIFO for the file": func(dir string) error {
			return errors.Join(os.Remove(dir+"/shop/2.yaml"), syscall.Mkfifo(dir+"/shop/2.yaml", 0o600))
		},
		"a link for a version": func(dir string) error {
			return errors.Join(os.Rename(dir+"/shop/2.json", dir+"/elsewhere"), os.Symlink("../elsewhere", dir+"/shop/2.json"))
		},
		"a link for the project": func(dir string) error {
			return errors.Join(os.Rename(dir+"/shop", dir+"/../shop"), os.Symlink("../shop", dir+"/shop"))
		},
		"a link for the registry": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"2"), os.Symlink(dir+"2", dir))
		},
		"others may write to the project":  func(dir string) error { return os.Chmod(dir+"/shop", 0o777) },
		"others may write to the registry": func(dir string) error { return os.Chmod(dir, 0o770) },
		"another user's project":           func(dir string) error { return os.Chown(dir+"/shop", 65534, 65534) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			r.mustApply(t, text("shop", 1))
			r.mustApply(t, text("shop", 2))
			if err := damage(r.Dir); err != nil {
				t.Fatal(err)
			}
			damaged := new(DamagedError)
			got, err := r.Current("shop")
			if name == "a version of another name" {
				got, err = r.Current("other")
			}
			if !errors.As(err, &damaged) {
				t.Errorf("%+v, %v", got.Version, err)
			}
			if err := r.Tidy(); err != nil {
				t.Error(err)
			}
			if strings.HasPrefix(name, "a link for the") || strings.HasPrefix(name, "others") || strings.HasPrefix(name, "another user") {
				if _, _, err := r.Apply(t.Context(), text("shop", 3), ann, unrecorded); !errors.As(err, &damaged) {
					t.Errorf("apply: %v", err)
				}
			}
		})
	}
}

// TestTidy removes what a killed process leaves, and nothing else.
func TestTidy(t *testing.T) {
	r := newRegistry(t)
	if err := r.Tidy(); err != nil {
		t.Error(err)
	}
	r.mustApply(t, text("shop", 1))
	for _, name := range []string{"shop/2.yaml", "shop/2.json.tmp", "shop/notes", "empty"} {
		path, err := filepath.Join(r.Dir, name), error(nil)
		if name == "empty" {
			err = os.Mkdir(path, 0o700)
		} else {
			err = os.WriteFile(path, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Tidy(); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, pattern := range []string{"*", "*/*"} {
		found, _ := filepath.Glob(filepath.Join(r.Dir, pattern))
		left = append(left, found...)
	}
	want := r.Dir + "/shop " + r.Dir + "/shop/1.json " + r.Dir + "/shop/1.yaml " + r.Dir + "/shop/notes"
	if got := strings.Join(left, " "); got != want {
		t.Errorf("left: %s", got)
	}
	if v := r.mustApply(t, text("shop", 2)); v.Number != 2 {
		t.Errorf("%+v", v)
	}
}

// TestLock: a process that cannot get the lock gives up with its context.
func TestLock(t *testing.T) {
	r := newRegistry(t)
	unlock, err := r.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.Apply(ended, text("shop", 1), ann, unrecorded); err == nil {
		t.Error("applied while another process had the lock")
	}
	if err := r.Tidy(); err != nil {
		t.Error(err)
	}
}
