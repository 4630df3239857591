package main

import (
	"encoding/json"
	"errors"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/sampleruns"
)

// TestScripts runs the scripts in testdata/script, each with a home of its own.
//
// Beside testscript's commands they have
//
//	custody CODE ARG...    calls custody, which must exit with the code
//	hint                   the last call complained with a line that begins "custody:" and gave a hint
//	ndjson                 the last call's output is one JSON object a line
//	record NAME            makes the run "review" or "hostile" of package sampleruns in the home, without a VM
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, ".home")
			bin, err := furnish(home)
			if err != nil {
				return err
			}
			env.Setenv("CUSTODY_HOME", home)
			env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			env.Setenv("LANG", "C.UTF-8")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"custody": scriptCustody, "hint": scriptHint, "ndjson": scriptNDJSON,
			"record": func(ts *testscript.TestScript, _ bool, args []string) {
				stories := map[string]iter.Seq[audit.Event]{"review": sampleruns.Review(), "hostile": sampleruns.Hostile()}
				sampleruns.Record(t, ts.Getenv("CUSTODY_HOME"), stories[strings.Join(args, " ")])
			},
		},
	})
}

func scriptCustody(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: custody CODE ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	err = ts.Exec("custody", args[1:]...)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("custody %q exited %d, want %d", args[1:], code, want)
	}
}

var complaint = regexp.MustCompile(`(?m)\A(custody: .+\n)*custody: .+\n(custody: hint: .+\n)\z`)

func scriptHint(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: hint")
	}
	if said := ts.ReadFile("stderr"); !complaint.MatchString(said) {
		ts.Fatalf("not an error with a hint in lines of custody's own:\n%s", said)
	}
}

func scriptNDJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: ndjson")
	}
	n := 0
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("%v: %s", err, line)
		}
		n++
	}
	if n == 0 {
		ts.Fatalf("no JSON on stdout")
	}
}
