package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/state"
)

// Erase removes the contents of a record. The service, which has the record, has no key for the statement: without Signed it prints the
// statement, with Signed it carries it out.
type Erase struct {
	Key    string // the host's public key where root signs
	Name   string // the run, a prefix of its ID, or last
	Seq    uint64
	Reason string
	By     string
	Signed []byte `json:",omitempty"`
}

// maxErasure is how far the time of the service's statement may be from the time of its signature.
const maxErasure = time.Minute

// Erase has the service erase a record, with a statement that root signs with the key of h.
func (cl Client) Erase(ctx context.Context, h *host.Host, c Erase) error {
	key, err := h.Keys().Public()
	if err != nil {
		return err
	}
	c.Key = key
	text, err := cl.printed(ctx, c)
	if err != nil || len(text) == 0 { // it was stated before
		return err
	}
	var stated statement.Erasure
	if err := json.Unmarshal(text, &stated); err != nil {
		return fmt.Errorf("the service's statement of the erasure: %w", err)
	}
	if !c.requests(stated, time.Now()) {
		return errors.New("the service has another erasure signed than the requested one: it may be compromised, or its clock differs")
	}
	signer, err := h.Keys().Signing()
	if err != nil {
		return err
	}
	if c.Signed, err = stated.Sign(signer); err != nil {
		return err
	}
	c.Name = stated.Run
	return cl.Execute(ctx, c)
}

// requests reports whether a statement is what the command requests now.
func (c Erase) requests(stated statement.Erasure, now time.Time) bool {
	named := c.Name == "last" || strings.HasPrefix(stated.Run, c.Name)
	return named && stated.Seq == c.Seq && stated.Reason == c.Reason && stated.By == c.By && now.Sub(stated.Time).Abs() <= maxErasure
}

// Path implements Command.
func (Erase) Path() string { return "erase" }

func (c Erase) access() access {
	c.Key, c.Signed = "", nil
	return access{action: "manage", about: c.Name, query: c}
}

// permit implements guarded.
func (c Erase) permit(uid int, key string) error { return rootOf(uid, key, c.Key, "erases records") }

// Execute implements Command.
func (c Erase) Execute(ctx context.Context, e *Env) error {
	h, err := e.Home()
	if err != nil {
		return err
	}
	run, err := h.Logs().Run(ctx, "", c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	asked := host.Erasure{Run: run.ID, Seq: c.Seq, Reason: c.Reason, By: c.By}
	switch {
	case c.Key == "" || h.Erasures().Stated(run.ID, c.Seq):
		err = h.Erasures().Erase(ctx, asked)
	case c.Signed != nil:
		err = h.Erasures().EraseSigned(ctx, c.Signed)
	default:
		stated, err := h.Erasures().State(asked)
		if err != nil {
			return err
		}
		return json.NewEncoder(e.Stdout).Encode(stated)
	}
	if err != nil {
		return err
	}
	e.Say(fmt.Sprintf("erased seq %d of run %s; its hash stays, and the run verifies", c.Seq, run.ID))
	e.Say("copies that left this host (bundles, exports, back-ups) are not reached by this")
	for _, left := range storedStates(h, run.ID) {
		e.Say(left)
	}
	return nil
}

// storedStates describes the states of the run's sandbox that can contain what was erased: they are not reached either.
func storedStates(h *host.Host, run string) (list []string) {
	const remedy = "`custody destroy` of the sandbox removes it"
	_, err := os.Stat(filepath.Join(h.States(), run+state.Suffix))
	switch {
	case err == nil:
		list = append(list, "the sandbox is paused, and its stored state can contain it: "+remedy)
	case !errors.Is(err, fs.ErrNotExist): // only root can read the directory
		list = append(list, "if the sandbox is paused, its stored state can contain it: "+remedy)
	}
	if h.Config().Paused.Archive != nil {
		list = append(list, "if the sandbox was archived, its state in the archive can contain it: "+remedy)
	}
	return list
}

// printed executes a command and returns what it prints to standard output.
func (cl Client) printed(ctx context.Context, c Command) ([]byte, error) {
	var text bytes.Buffer
	env := *cl.Env
	env.Stdout = &text
	cl.Env = &env
	err := cl.Execute(ctx, c)
	return text.Bytes(), err
}
