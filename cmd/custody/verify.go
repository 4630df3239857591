package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
)

// usualWithin is the default of verify's --within.
const usualWithin = 24 * time.Hour

const (
	exitDoesNotHold   exitCode = 1
	exitCannotBeKnown exitCode = 2
)

type verifyCmd struct {
	What     string        `arg:"" name:"run|file" predictor:"run" help:"A run (or last), the file of a bundle (- for standard input), that of the proof of one record, or the directory of a report."`
	Key      []string      `placeholder:"KEY|FILE" help:"Trust this public key (host.pub of the host that made the record). Default: this host's own."`
	FleetKey []string      `placeholder:"KEY|FILE" help:"Trust the keys of hosts that this root key of a fleet states, in the bundle. Default: that of host.yaml."`
	Witness  []string      `placeholder:"KEY|FILE" help:"Count this witness's cosignature. Default: those of host.yaml."`
	Quorum   int           `placeholder:"N" help:"Of the witnesses, so many must have cosigned (default: all that are given)."`
	Within   time.Duration `default:"24h" placeholder:"DURATION" help:"So long after it says it was sealed the record must have been in the log, by the witnesses' time or a stamp's."`
	Since    string        `type:"existingfile" placeholder:"FILE" help:"An earlier checkpoint that you kept: the host's log must have gone on from there."`
	TSA      []string      `name:"tsa" type:"existingfile" placeholder:"FILE" help:"The checkpoint must be stamped by an authority with one of these roots."`
	Unlogged bool          `help:"Accept a bundle without a checkpoint, as early versions wrote. It proves less."`
	JSON     bool          `name:"json" help:"Print the result as one JSON object (docs/verify.md)."`
	Detailed bool          `help:"Exit with each failure's own status (docs/verify.md) rather than 1 or 2."`
}

func (c verifyCmd) Run(a *app) error {
	out := a.stdout
	if c.JSON {
		quiet := *a
		quiet.stdout = io.Discard
		a = &quiet
	}
	j := c.judge(a)
	a.notifyJudged(c.What, j)
	code := c.status(j.code, j.found)
	if !c.JSON {
		return code
	}
	return errors.Join(j.writeJSON(out, c.What, code), code)
}

// judge finds out what is named, and checks it.
func (c verifyCmd) judge(a *app) judged {
	t, err := c.trust(a.ctx)
	if err != nil {
		return judged{code: a.cannotBeJudged(err), found: err}
	}
	if info, err := os.Stat(c.What); err == nil && info.IsDir() {
		return a.verifyReport(c.What, t)
	}
	file, err := isFile(c.What)
	if err == nil && file && c.What != stdinName {
		err = regular.Check(c.What)
	}
	switch {
	case err != nil:
		return judged{code: a.cannotBeJudged(err), found: err}
	case file:
		return a.verifyFile(c.What, t)
	}
	return a.verifyRun(c.What, t)
}

// status is the code to exit with for what verify found.
func (c verifyCmd) status(code, found error) error {
	var finding *verdict.Verdict
	if c.Detailed && errors.As(found, &finding) {
		return exitCode(finding.Status())
	}
	return code
}

// trust is whom the flags name, else whom this host knows.
func (c verifyCmd) trust(ctx context.Context) (proof.Trust, error) {
	t := proof.Trust{Quorum: c.Quorum, Within: c.Within, Unlogged: c.Unlogged}
	var err error
	if t.Keys, t.Fleets, err = c.keys(ctx); err != nil {
		return t, err
	}
	if c.Within <= 0 {
		return t, usageError{fmt.Errorf("--within %s: give a time, such as 24h", c.Within)}
	}
	t.Witnesses, err = openKeys(ctx, c.Witness, statement.ParseWitness)
	if err != nil {
		return t, fmt.Errorf("--witness %w", err)
	}
	if t.Quorum == 0 {
		t.Quorum = len(t.Witnesses)
	}
	if t.Quorum < 0 || t.Quorum > len(t.Witnesses) {
		return t, usageError{fmt.Errorf("--quorum %d of %d witnesses: give as many --witness at least", c.Quorum, len(t.Witnesses))}
	}
	if c.Since != "" {
		if t.Since, err = regular.Given(ctx, c.Since, maxGiven); err != nil {
			return t, err
		}
	}
	return t, c.authorities(ctx, &t)
}

// keys are those of hosts and those of fleets' roots.
func (c verifyCmd) keys(ctx context.Context) (hosts, fleets note.Verifiers, err error) {
	if len(c.Key) == 0 && len(c.FleetKey) == 0 {
		return host.KnownKeys()
	}
	if hosts, err = verifiers(ctx, "--key", c.Key); err == nil {
		fleets, err = verifiers(ctx, "--fleet-key", c.FleetKey)
	}
	return hosts, fleets, err
}

func (c verifyCmd) authorities(ctx context.Context, t *proof.Trust) error {
	for _, file := range c.TSA {
		text, err := regular.Given(ctx, file, maxGiven)
		if err != nil {
			return err
		}
		if t.Authorities == nil {
			t.Authorities = x509.NewCertPool()
		}
		if !t.Authorities.AppendCertsFromPEM(text) {
			return fmt.Errorf("--tsa %s has no certificate in PEM", file)
		}
		t.Stamped = true
	}
	return nil
}

// maxGiven is how long a key, a checkpoint or a list of certificates can be, in bytes.
const maxGiven = 1 << 20

// keyText is a key that was given as it is, or as the name of a file.
func keyText(ctx context.Context, key string) (string, error) {
	if _, err := os.Lstat(key); err == nil {
		text, err := regular.Given(ctx, key, maxGiven)
		if err != nil {
			return "", err
		}
		key = string(text)
	}
	return strings.Trim(key, " \t\r\n"), nil
}

// cannotBeJudged reports why a check could not be made, and returns the exit code for that.
func (a *app) cannotBeJudged(err error) error {
	if a.ctx.Err() != nil && !errors.Is(err, verdict.ErrDoesNotHold) {
		where := ""
		if waited := new(fs.PathError); errors.As(err, &waited) && errors.Is(waited, context.Canceled) {
			where = " while reading " + waited.Path
		}
		err = fmt.Errorf("interrupted by a signal%s, before the check was done: this is no finding about the record", where)
	}
	a.Complain(err)
	return exitCannotBeKnown
}

// verifiers are those of the keys that a flag names, each a file or the key itself.
func verifiers(ctx context.Context, flag string, keys []string) (note.Verifiers, error) {
	list, err := openKeys(ctx, keys, statement.ParseVerifier)
	if err != nil {
		return nil, fmt.Errorf("%s %w", flag, err)
	}
	return note.VerifierList(list...), nil
}

// openKeys opens keys, each a file or the key itself. One that is given twice, also as one of another kind, counts once.
func openKeys(ctx context.Context, keys []string, open func(text string) (note.Verifier, error)) (list []note.Verifier, err error) {
	seen := map[string]string{} // the text of a key, by how signatures name it
	for _, key := range keys {
		text, err := keyText(ctx, key)
		if err != nil {
			return nil, err
		}
		v, err := open(text)
		if err != nil {
			return nil, fmt.Errorf("%.300q is neither a public key nor a file with one: %w", key, err)
		}
		id := fmt.Sprintf("%s+%08x", v.Name(), v.KeyHash())
		switch other, ok := seen[id]; {
		case !ok:
			list = append(list, v)
		case !sameKey(text, other):
			return nil, fmt.Errorf("%.300q: signatures name another key that was given in the same way, %s", key, other)
		}
		seen[id] = text
	}
	return list, nil
}

// verifyFile checks a bundle, or the proof of one record, which is a JSON object.
func (a *app) verifyFile(name string, t proof.Trust) judged {
	path, remove, err := a.bundleFile(name)
	if err != nil {
		return judged{of: ofBundle, code: a.cannotBeJudged(err), found: err}
	}
	defer remove()
	object, err := beginsWith(path, '{')
	switch {
	case err != nil:
		return judged{code: a.cannotBeJudged(err), found: err}
	case object:
		return a.verifyRecord(path, t)
	}
	return a.verifyBundle(path, t)
}

// beginsWith reports whether a file's first byte is c. An empty file has none.
func beginsWith(path string, c byte) (bool, error) {
	f, err := regular.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var first [1]byte
	if _, err := f.Read(first[:]); err != nil && err != io.EOF {
		return false, err
	}
	return first[0] == c, nil
}

// sameKey reports whether two public keys, each NAME+HASH+KEY, end with the same 32 bytes, whatever their kinds.
func sameKey(a, b string) bool {
	const encoded = 44 // a byte for the kind and 32 more, in base64
	x, err := base64.StdEncoding.DecodeString(a[len(a)-encoded:])
	y, otherErr := base64.StdEncoding.DecodeString(b[len(b)-encoded:])
	return err == nil && otherErr == nil && bytes.Equal(x[1:], y[1:])
}

func (a *app) verifyBundle(path string, t proof.Trust) judged {
	e, err := proof.OpenBundle(path)
	if err != nil {
		return judged{of: ofBundle, code: a.judge(proof.Report{}, err), found: err}
	}
	defer e.Close()
	report, err := proof.Verify(a.ctx, e, t)
	return judged{of: ofBundle, report: report, code: a.judge(report, err), found: err}
}

// verifyRecord checks the proof of one record.
func (a *app) verifyRecord(path string, t proof.Trust) judged {
	data, err := regular.ReadFile(path)
	if err != nil {
		return judged{of: ofRecord, code: a.cannotBeJudged(err), found: err}
	}
	p, err := proof.ParseRecordProof(data)
	if err != nil {
		return judged{of: ofRecord, code: a.verdict(err, ""), found: err}
	}
	r, err := p.Verify(t)
	fmt.Fprintf(a.stdout, "run       %s\nrecord    seq %d, leaf %s\nkey       %s\n", console.Clean(r.Run), r.Seq, r.Leaf, console.OrDash(r.KeyName))
	printPublished(a.stdout, r.Log)
	if e := r.Erased; e != nil {
		fmt.Fprintf(a.stdout, "erased    on %s for %s: %s\n", e.Time.Format(time.DateTime), console.Clean(e.By), console.Clean(e.Reason))
	}
	said := "verified: this record, and nothing of its neighbours"
	switch r.State {
	case proof.StateOpen:
		said = "verified: nothing yet. The record is in a segment that is not sealed: ask again"
	case proof.StateSealed:
		said = "verified: this record, under the host's signature and no checkpoint"
	}
	return judged{of: ofRecord, report: proof.Report{Run: r.Run, KeyName: r.KeyName, Published: r.Log}, record: &judgedRecord{r.Seq, r.Leaf, string(r.State)}, code: a.verdict(err, said), found: err}
}

// verifyRun checks the host's log of a run, and what the store says of it.
func (a *app) verifyRun(name string, t proof.Trust) judged {
	report, err, barred := a.findRun(name, t)
	if barred {
		return judged{of: ofRun, code: a.cannotBeJudged(err), found: err}
	}
	return judged{of: ofRun, report: report, code: a.judge(report, err), found: err}
}

// findRun finds a run and checks it. barred reports that err kept it from being checked.
func (a *app) findRun(name string, t proof.Trust) (report proof.Report, err error, barred bool) {
	h, err := a.open()
	if err != nil {
		return report, err, true
	}
	st, err := h.Reader(a.ctx)
	if err != nil {
		return report, err, true
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", name)
	if errors.Is(err, store.ErrNotFound) && h.RunLogs().Has(name) { // the store does not know it, the log does
		run, err = store.NewRun(name), nil
	}
	if err != nil {
		return report, noRun(name, err), true
	}
	report, err = h.Checks().Verify(a.ctx, st, "", run.ID, t)
	return report, err, false
}

// judge prints what was found and turns it into the exit code.
func (a *app) judge(r proof.Report, err error) error {
	if r.Run != "" {
		printReport(a.stdout, r)
	}
	if r.Selected != nil {
		return a.verdict(err, "verified: the records that are shown, and the place of each other one")
	}
	return a.verdict(err, "verified: every record from the first to the closing manifest")
}

// verdict prints what holds, or that it does not, and turns it into the exit code.
func (a *app) verdict(err error, holds string) error {
	switch {
	case err == nil:
		fmt.Fprintln(a.stdout, holds)
		return nil
	case errors.Is(err, verdict.ErrCannotBeJudged), a.ctx.Err() != nil && !errors.Is(err, verdict.ErrDoesNotHold):
		fmt.Fprintln(a.stdout, "CANNOT BE JUDGED")
		return a.cannotBeJudged(err)
	default:
		fmt.Fprintln(a.stdout, "DOES NOT HOLD")
		a.Complain(err)
		return exitDoesNotHold
	}
}
