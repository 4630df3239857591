package docs_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// checkers are the implementations that must reach the same verdicts as verify: verify.py, and the page's checker, which
// hack/web/build puts into testdata. Each is one process that answers a line of arguments with a line.
type checkers struct {
	t   *testing.T
	all []checker
}

type checker struct {
	name string
	in   io.Writer
	out  *bufio.Reader
}

func newCheckers(t *testing.T) checkers {
	t.Helper()
	return checkers{t, []checker{
		startChecker(t, "verify.py", "python3", "-I", "-c", driver),
		startChecker(t, "the page", "node", "testdata/checker.mjs"),
	}}
}

func startChecker(t *testing.T, name, program string, arguments ...string) checker {
	t.Helper()
	c := exec.Command(program, arguments...)
	in, out := must(c.StdinPipe()), must(c.StdoutPipe())
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); c.Wait() })
	return checker{name, in, bufio.NewReader(out)}
}

// ask returns the answer to a line of arguments: the status, a space and the finding.
func (c checker) ask(arguments ...string) string {
	fmt.Fprintln(c.in, strings.Join(arguments, "\t"))
	return must(c.out.ReadString('\n'))
}

// agree fails the test unless all checkers report verify's verdict.
func (s checkers) agree(title string, want int, err error, arguments ...string) {
	s.t.Helper()
	for _, c := range s.all {
		if answer := c.ask(arguments...); !strings.HasPrefix(answer, fmt.Sprint(want, " ")) {
			s.t.Errorf("%s: verify: %d, %v\n%s: %s", title, want, err, c.name, answer)
		}
	}
}
