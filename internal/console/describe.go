package console

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// hinter is an error that has its own remedy.
type hinter interface{ Hint() string }

// Describe returns the text of an error, and what the user can do about it: the remedy that the error itself has, or that of an output
// without space; "" if there is none. Package remedy knows more.
func Describe(err error) (text, hint string) {
	var h hinter
	if errors.As(err, &h) {
		hint = h.Hint()
	}
	if p := new(os.PathError); hint == "" && errors.As(err, &p) && errors.Is(p, unix.ENOSPC) && (p.Path == os.Stdout.Name() || p.Path == os.Stderr.Name()) {
		hint = "free space for " + p.Path + ": the output is not complete"
	}
	return strings.TrimRight(err.Error(), "\n"), hint
}
