package local

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// programTime bounds the search for a program.
const programTime = 5 * time.Second

// plainWord matches a word that the shell does not change.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./+][A-Za-z0-9_./+:,@%-]*$`)

// search succeeds if the shell finds a program or a builtin with that name. It does not run it.
const search = `case $1 in */*) [ -f "$1" ] && [ -x "$1" ];; *) command -v "$1" >/dev/null;; esac || exit 3`

// CheckProgram returns an error if the program of a cmd: source does not exist or the caller cannot execute it, with dir
// as the current directory. It does not run the command. It returns nil for other sources, and for commands whose
// success depends on more than the first word.
func CheckProgram(ctx context.Context, from, dir string, as *Caller) error {
	command, is := strings.CutPrefix(from, "cmd:")
	words := strings.Fields(command)
	switch {
	case !is || len(words) == 0 || !plainWord.MatchString(words[0]):
		return nil
	case strings.ContainsAny(command, ";&\n") || strings.Contains(command, "||") || len(words) > 1 && strings.HasPrefix(words[1], "("):
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", search, "sh", words[0])
	cmd.Dir = dir
	as.Become(cmd)
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		return nil // it exists, or the step reports the failure
	}
	if strings.Contains(words[0], "/") {
		return fmt.Errorf("the command of a cmd: source: %s is not a file that %s can execute", words[0], as)
	}
	return fmt.Errorf("the command of a cmd: source: there is no program %s in the PATH of %s", words[0], as)
}

// String returns the caller's name.
func (c *Caller) String() string {
	if c == nil {
		return "this user"
	}
	return "user " + c.name
}
