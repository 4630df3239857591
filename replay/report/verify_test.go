package report

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// TestVerify checks directories that are as a host wrote them, and changed ones.
func TestVerify(t *testing.T) {
	var unreadable *UnreadableError
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	barred := func(err error) bool { return errors.As(err, &unreadable) }
	otherRun := func(t *testing.T, dir string) {
		write(t, bundleOf(t, dir, 0), mustOf(os.ReadFile(bundleOf(t, dir, 1))))
	}
	instead := func(name string, put func(path string) error) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.RemoveAll(path), put(path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	fifo := func(path string) error { return unix.Mkfifo(path, 0o600) }
	nothing := func(string) error { return nil }
	runsKey := note.VerifierList(mustOf(statement.ParseVerifier(strings.TrimSpace(string(mustOf(os.ReadFile("testdata/host.pub")))))), packerKey)
	for name, c := range map[string]struct {
		change func(*testing.T, string)
		want   func(error) bool
		runs   int
	}{
		"as it was written":           {func(*testing.T, string) {}, func(err error) bool { return err == nil }, 2},
		"a changed page":              {replace("report/soc2.html", "99 records", "98 records"), is(verdict.ErrAttachmentAltered), 0},
		"a changed statement":         {replace("attachments", `"by":"ann"`, `"by":"eve"`), is(verdict.ErrDoesNotHold), 0},
		"another run's bundle":        {otherRun, is(ErrOtherBundle), 0},
		"no statement":                {instead("attachments", nothing), barred, 0},
		"a FIFO as the statement":     {instead("attachments", fifo), barred, 0},
		"no files":                    {instead("report", nothing), barred, 0},
		"a FIFO among the files":      {instead("report/x", fifo), barred, 0},
		"a file that was not stated":  {instead("report/x", func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }), is(verdict.ErrDoesNotHold), 0},
		"too many files":              {manyFiles, barred, 0},
		"a file that is too long":     {instead("report/x", tooLong), barred, 0},
		"a FIFO in a bundle's place":  {func(t *testing.T, dir string) { instead(filepath.Base(bundleOf(t, dir, 1)), fifo)(t, dir) }, barred, 1},
		"a bundle that is not there":  {func(t *testing.T, dir string) { os.Remove(bundleOf(t, dir, 1)) }, barred, 1},
		"a bundle that is no archive": {func(t *testing.T, dir string) { write(t, bundleOf(t, dir, 1), []byte("x")) }, is(verdict.ErrBundle), 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir, keys := handedOut(t)
			c.change(t, dir)
			got, err := Verify(t.Context(), dir, proof.Trust{Keys: both{keys, runsKey}, Unlogged: true})
			if !c.want(err) || len(got.Runs) != c.runs {
				t.Errorf("%d runs, want %d: %v", len(got.Runs), c.runs, err)
			}
			if err == nil && (got.Statement.By != "ann" || got.Runs[1].Head != got.Statement.About[1].Head) {
				t.Errorf("the statement is %+v", got.Statement)
			}
		})
	}
}

// both are the verifiers of the first list, and those of the second.
type both [2]note.Verifiers

// Verifier implements note.Verifiers.
func (b both) Verifier(name string, hash uint32) (note.Verifier, error) {
	if v, err := b[0].Verifier(name, hash); err == nil {
		return v, nil
	}
	return b[1].Verifier(name, hash)
}

func mustOf[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// bundleOf is the bundle of the run that the statement of an unchanged directory names in place i.
func bundleOf(t *testing.T, dir string, i int) string {
	t.Helper()
	signed := mustOf(os.ReadFile(filepath.Join(dir, Statement)))
	text, _, _ := strings.Cut(string(signed), "\n\n")
	a := mustOf(statement.ParseAttachments(text + "\n"))
	return filepath.Join(dir, a.About[i].Run+".tar")
}

// manyFiles puts more files beside a report's than a report has.
func manyFiles(t *testing.T, dir string) {
	for i := range maxFiles {
		write(t, filepath.Join(dir, Folder, strconv.Itoa(i)), []byte("x"))
	}
}

// tooLong makes a file, without its blocks, that is longer than a report's.
func tooLong(path string) error {
	return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxFile+1))
}
