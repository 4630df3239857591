package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/doctor/remedy"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/replay/judge"
	"github.com/custody-project/custody/store"
)

// Verify verifies a run: the host's log of it, and the store's records.
type Verify struct {
	Run     string
	Trusted judge.Trusted
	VerifyOutput
}

// VerifyOutput is how a judgement is printed.
type VerifyOutput struct {
	Target   string // what is verified, as the user named it
	JSON     bool   `json:",omitempty"`
	Detailed bool   `json:",omitempty"`
}

// Path implements Command.
func (Verify) Path() string { return "verify" }

func (c Verify) access() access {
	c.Trusted.Since, c.Trusted.Authorities = nil, nil
	return access{action: "verify", about: c.Run, query: c}
}

// Execute implements Command.
func (c Verify) Execute(ctx context.Context, e *Env) error {
	return c.Print(ctx, e, func(ctx context.Context, e *Env) judge.Judgement {
		t, err := c.Trusted.Trust(e.KnownKeys)
		if err != nil {
			return judge.Barred("", err)
		}
		h, st, err := e.Reader(ctx)
		if err != nil {
			return judge.Barred(judge.OfRun, err)
		}
		defer st.Close()
		run, err := st.Run(ctx, "", c.Run)
		if errors.Is(err, store.ErrNotFound) && h.RunLogs().Has(c.Run) { // the store does not have it, but the log does
			run, err = store.NewRun(c.Run), nil
		}
		if err != nil {
			return judge.Barred(judge.OfRun, noRun(c.Run, err))
		}
		return judge.Run(ctx, h, st, run, t)
	})
}

// Print prints the judgement that find returns, and converts it to the exit code.
func (c VerifyOutput) Print(ctx context.Context, e *Env, find func(context.Context, *Env) judge.Judgement) error {
	out := e.Stdout
	if c.JSON {
		quiet := *e
		quiet.Stdout = io.Discard
		e = &quiet
	}
	j := find(ctx, e)
	code := e.Conclude(ctx, j)
	if errors.Is(code, DoesNotHold) {
		e.NotifyFailed(ctx, nil, "", fmt.Sprintf("verify %s: %v", filepath.Base(c.Target), j.Err))
	}
	if found := new(verdict.Verdict); c.Detailed && errors.As(j.Err, &found) {
		code = Exit(found.Status())
	}
	if !c.JSON {
		return code
	}
	var status Exit
	errors.As(code, &status) // 0 if there is none
	return errors.Join(json.NewEncoder(out).Encode(j.Document(c.Target, int(status), remedy.Of(j.Err), time.Now())), code)
}

// Conclude prints a judgement and converts it to the exit code.
func (e *Env) Conclude(ctx context.Context, j judge.Judgement) error {
	holds := j.WriteText(e.Stdout)
	if j.Barred {
		return e.CannotBeJudged(ctx, j.Err)
	}
	return e.Verdict(ctx, j.Err, holds)
}

// Verdict prints what holds, or that it does not, and converts it to the exit code.
func (e *Env) Verdict(ctx context.Context, err error, holds string) error {
	switch {
	case err == nil:
		fmt.Fprintln(e.Stdout, holds)
		return nil
	case errors.Is(err, verdict.ErrCannotBeJudged), ctx.Err() != nil && !errors.Is(err, verdict.ErrDoesNotHold):
		fmt.Fprintln(e.Stdout, "CANNOT BE JUDGED")
		return e.CannotBeJudged(ctx, err)
	default:
		fmt.Fprintln(e.Stdout, "DOES NOT HOLD")
		e.Complain(err)
		return DoesNotHold
	}
}

// CannotBeJudged reports why a check could not be made, and returns the exit code for that.
func (e *Env) CannotBeJudged(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, verdict.ErrDoesNotHold) {
		where := ""
		if waited := new(fs.PathError); errors.As(err, &waited) && errors.Is(waited, context.Canceled) {
			where = " while reading " + waited.Path
		}
		err = fmt.Errorf("interrupted by a signal%s, before the check was done: this is no finding about the record", where)
	}
	e.Complain(err)
	return CannotBeKnown
}

// KnownKeys returns the public keys that the host knows.
func (e *Env) KnownKeys() (host.PublicKeys, error) {
	dir, err := e.Dir()
	if err != nil {
		return host.PublicKeys{}, err
	}
	if e.OpenDir == nil {
		return host.KnownKeys(dir)
	}
	h, err := e.OpenDir(dir)
	if err != nil {
		return host.PublicKeys{}, err
	}
	return h.Fleet().KnownKeys()
}

// Keys writes the public keys that the host knows as JSON. A client verifies bundles with them.
type Keys struct{}

// Path implements Command.
func (Keys) Path() string { return "keys" }

func (c Keys) access() access { return access{action: "view", query: c} }

// Execute implements Command.
func (Keys) Execute(_ context.Context, e *Env) error {
	known, err := e.KnownKeys()
	if err != nil {
		return err
	}
	return json.NewEncoder(e.Stdout).Encode(known)
}
