package remedy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/vmm/template"
)

type ownHint struct{ error }

func (ownHint) Hint() string { return "its own" }

func TestOf(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want string // a part of the remedy; "": there is none
	}{
		{"none", nil, ""},
		{"unknown", errors.New("something"), ""},
		{"its own", fmt.Errorf("wrapped: %w", ownHint{template.ErrNotFound}), "its own"},
		{"listed", fmt.Errorf("wrapped: %w", store.ErrNotFound), "custody runs"},
		{"project file", &project.Error{Message: "wrong", Hint: "write it so"}, "write it so"},
		{"full disk", &fs.PathError{Op: "write", Path: "/x", Err: unix.ENOSPC}, "$CUSTODY_HOME"},
		{"full output", &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: unix.ENOSPC}, "the output is not complete"},
		{"a file of another user", &fs.PathError{Op: "open", Path: "/x", Err: unix.EACCES}, "another user"},
		{"a system call", os.NewSyscallError("mount", unix.EPERM), ""},
	} {
		if got := Of(tc.err); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestText(t *testing.T) {
	err := &project.Error{File: "custody.yaml", Message: "wrong", Hint: "write it so"}
	if text := Text(err); strings.Contains(text, err.Hint) || !strings.Contains(text, err.Message) {
		t.Errorf("the text of %q without its remedy: %q", err, text)
	}
	if text := Text(errors.New("two\nlines\n")); text != "two\nlines" {
		t.Errorf("%q ends with a line break", text)
	}
}
