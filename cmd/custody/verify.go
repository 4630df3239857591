package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/store/sqlite"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/replay"
)

const (
	exitDoesNotHold   exitCode = 1
	exitCannotBeKnown exitCode = 2
)

type verifyCmd struct {
	What string   `arg:"" name:"run|file" help:"A run (or last), or a bundle's file."`
	Key  []string `placeholder:"KEY|FILE" help:"Trust this public key (host.pub of the host that made the record). Default: this host's own."`
}

func (c verifyCmd) Run(a *app) error {
	trusted, err := trust(c.Key)
	if err != nil {
		return a.cannotBeJudged(err)
	}
	if info, err := os.Stat(c.What); err == nil && info.Mode().IsRegular() {
		return a.verifyBundle(c.What, trusted)
	}
	return a.verifyRun(c.What, trusted)
}

// cannotBeJudged tells why, and ends with the exit code that says so.
func (a *app) cannotBeJudged(err error) error {
	a.complain(err)
	return exitCannotBeKnown
}

// trust returns the verifiers of the keys named, each a file or the key itself.
func trust(keys []string) (note.Verifiers, error) {
	if len(keys) == 0 {
		dir, err := home.Dir()
		if err != nil {
			return nil, err
		}
		own, err := os.ReadFile(dir + "/keys/" + proof.PublicFile)
		if err != nil {
			return note.VerifierList(), nil // a machine without a key of its own trusts none
		}
		keys = []string{string(own)}
	}
	var list []note.Verifier
	for _, key := range keys {
		if b, err := os.ReadFile(key); err == nil {
			key = string(b)
		}
		v, err := note.NewVerifier(strings.TrimSpace(key))
		if err != nil {
			return nil, fmt.Errorf("--key %.60q is neither a public key nor a file with one: %w", key, err)
		}
		list = append(list, v)
	}
	return note.VerifierList(list...), nil
}

func (a *app) verifyBundle(path string, trusted note.Verifiers) error {
	e, err := proof.OpenBundle(path)
	if err != nil {
		return a.judge(proof.Report{}, err)
	}
	defer e.Close()
	report, err := proof.Verify(a.ctx, e, proof.Trust{Keys: trusted, Unlogged: true})
	return a.judge(report, err)
}

// verifyRun checks the host's log of a run, and what the store says of it.
func (a *app) verifyRun(name string, trusted note.Verifiers) error {
	h, err := a.open()
	if err != nil {
		return a.cannotBeJudged(err)
	}
	st, err := h.Store()
	if err != nil {
		return a.cannotBeJudged(err)
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", name)
	if errors.Is(err, store.ErrNotFound) && h.HasLog(name) { // the store does not know it, the log does
		run, err = store.NewRun(name), nil
	}
	if err != nil {
		return a.cannotBeJudged(fmt.Errorf("%s: %w", name, err))
	}
	e, err := proof.OpenDir(h.RunDir(run.ID))
	if err != nil {
		return a.judge(proof.Report{}, err)
	}
	defer e.Close()
	report, err := proof.Verify(a.ctx, e, proof.Trust{Keys: trusted, Unlogged: true})
	if err == nil {
		err = a.compareStore(h, st, run.ID)
	}
	return a.judge(report, err)
}

// compareStore checks that the store shows what the log holds. A store that
// only lags behind is brought up to date first: the run may have ended just now.
func (a *app) compareStore(h *home.Home, st *sqlite.Store, run string) error {
	err := a.compare(h, st, run)
	if !lags(err) {
		return err
	}
	if err := h.Tidy(a.ctx, a.say); err != nil {
		return err
	}
	err = a.compare(h, st, run)
	if lags(err) && !h.HasWhole(run) {
		return nil // the run's process carries the rest over
	}
	return err
}

func (a *app) compare(h *home.Home, st *sqlite.Store, id string) error {
	const finding = "the log holds, but not what the store shows of it: %w"
	run, err := st.Run(a.ctx, "", id)
	if errors.Is(err, store.ErrNotFound) { // the store does not know it, the log does
		run, err = store.NewRun(id), nil
	}
	if err != nil {
		return err
	}
	if _, err := replay.CompareStore(a.ctx, st.Records(a.ctx, store.Query{Run: id}), h.Frames(id)); err != nil {
		return fmt.Errorf(finding, err)
	}
	if err := replay.CompareSummary(run, h.Frames(id)); err != nil {
		return fmt.Errorf(finding, err)
	}
	return nil
}

// lags says whether all that the store lacks is the end.
func lags(err error) bool {
	var d *replay.Differences
	return errors.As(err, &d) && d.Total == d.Behind
}

// judge prints what was found and turns it into the exit code.
func (a *app) judge(r proof.Report, err error) error {
	if r.Run != "" {
		printReport(a.stdout, r)
	}
	switch {
	case err == nil:
		fmt.Fprintln(a.stdout, "verified: every record from the first to the closing manifest")
		return nil
	case errors.Is(err, proof.ErrCannotBeJudged), a.ctx.Err() != nil:
		fmt.Fprintln(a.stdout, "CANNOT BE JUDGED")
		return a.cannotBeJudged(err)
	default:
		fmt.Fprintln(a.stdout, "DOES NOT HOLD")
		a.complain(err)
		return exitDoesNotHold
	}
}

func printReport(w io.Writer, r proof.Report) {
	fmt.Fprintf(w, "run       %s\n", clean(r.Run))
	fmt.Fprintf(w, "records   %d in %d segments, proven up to seq %d\n", r.Records, r.Segments, r.HoldsTo)
	fmt.Fprintf(w, "closing   %s\n", orNone(string(r.Closing)))
	fmt.Fprintf(w, "tier      %s\n", orNone(r.Facts.Tier))
	fmt.Fprintf(w, "template  %s\n", orNone(r.Facts.TemplateDigest))
	fmt.Fprintf(w, "policy    %s\n", orNone(r.Facts.PolicyDigest))
	fmt.Fprintf(w, "head      %s\n", r.Head)
	fmt.Fprintf(w, "key       %s\n", orNone(r.KeyName))
	if len(r.Gaps) == 0 {
		fmt.Fprintln(w, "losses    none declared")
	}
	for _, g := range r.Gaps {
		fmt.Fprintf(w, "loss      stage %s: %d events, %d bytes: %s\n", clean(g.Stage), g.Count, g.Bytes, clean(g.Cause))
	}
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return clean(s)
}

type bundleCmd struct {
	Name string `arg:"" name:"run" help:"The run, a beginning of its name, or last."`
	Out  string `short:"o" required:"" type:"path" placeholder:"FILE" help:"The file to write."`
}

func (c bundleCmd) Run(a *app) error {
	h, err := a.open()
	if err != nil {
		return err
	}
	st, err := h.Store()
	if err != nil {
		return err
	}
	defer st.Close()
	run, err := st.Run(a.ctx, "", c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	key, err := h.Key()
	if err != nil {
		return err
	}
	if err := writeFile(c.Out, func(w io.Writer) error { return proof.WriteBundle(a.ctx, w, h.RunDir(run.ID), proof.BundleOptions{HostKey: key.Public}) }); err != nil {
		return err
	}
	a.say("wrote " + c.Out)
	a.say("who is to verify it needs this host's public key by another way: " + key.Public)
	return nil
}
