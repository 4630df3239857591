package console

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// hinter is an error that has its own remedy.
type hinter interface{ Hint() string }

// Hint returns what the user can do about an error: the remedy that the error itself has, or that of an output without space; "" if there is
// none. Package remedy knows more.
func Hint(err error) string {
	var h hinter
	if errors.As(err, &h) && h.Hint() != "" {
		return h.Hint()
	}
	if p := new(os.PathError); errors.As(err, &p) && errors.Is(p, unix.ENOSPC) && (p.Path == os.Stdout.Name() || p.Path == os.Stderr.Name()) {
		return "free space for " + p.Path + ": the output is not complete"
	}
	return ""
}

// Describe returns the text of an error, and its Hint; see Messages.
func Describe(err error) (text, hint string) { return strings.TrimRight(err.Error(), "\n"), Hint(err) }
