package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

// noSandbox is the type of the answer if there is no sandbox with an ID.
const noSandbox = "urn:custody:problem:no-sandbox"

// past returns the record of a sandbox that this process does not know, such as one that ended with an earlier process of the service. Its error is
// unknown, that of the look-up, if there is no such record.
func (h stateHandler) past(r *request, unknown error) (*model, store.Run, error) {
	p := new(access.Problem)
	if !errors.As(unknown, &p) || p.Type != noSandbox {
		return nil, store.Run{}, unknown
	}
	run, err := h.find(r)
	if err != nil {
		return nil, run, unknown
	}
	if run.End == nil || run.Events < run.LastSeq { // segments come in any order
		return nil, run, access.NewProblem(http.StatusServiceUnavailable, "incomplete", "the record of the sandbox is not in the store as a whole yet", "try again")
	}
	m, err := h.stories.model(r.Context(), run)
	if err == nil {
		err = m.genuine()
	}
	return m, run, err
}

// genuine returns the answer if a record of the run differs from what was signed. Output and exit codes of sandboxes are used without a look at
// marks, so there are none then.
func (m *model) genuine() error {
	if m.doubt == nil {
		return nil
	}
	return access.NewProblem(http.StatusConflict, "altered", fmt.Sprintf("%d records of the sandbox differ from what was signed, or cannot be checked", m.doubt.Count), "GET "+Base+"/runs/{run}/output has them with their verification")
}

// pastProcess returns the description of a process from the record of its sandbox.
func pastProcess(m *model, run store.Run, name string) (client.StartedProcess, error) {
	for _, s := range m.steps() {
		if s.Name != name {
			continue
		}
		out := client.StartedProcess{Name: s.Name, Argv: []string{}, Started: s.Start, Ended: s.End, ExitCode: s.ExitCode}
		for _, a := range s.Argv {
			out.Argv = append(out.Argv, string(a))
		}
		if out.Ended == nil {
			out.Ended = run.End
		}
		if out.ExitCode == nil {
			out.Error = fmt.Sprintf("its sandbox has ended (%s)", run.Status)
		}
		return out, nil
	}
	return client.StartedProcess{}, access.NewProblem(http.StatusNotFound, "no-process", fmt.Sprintf("the sandbox had no process %.80q", name), "GET "+Base+"/runs/{run} has its record")
}

// pastOutput sends what the record has of an output of the process that the path names.
func (h *sandboxesHandler) pastOutput(w http.ResponseWriter, r *request, m *model, run store.Run) error {
	if _, err := pastProcess(m, run, r.PathValue("process")); err != nil {
		return err
	}
	stream, err := r.oneOf("stream", "stdout", "stderr", "tty")
	if err != nil {
		return err
	}
	offset, err := r.number("offset", 0, 1<<62)
	if err != nil {
		return err
	}
	leave, err := h.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	a := newAnswering(w)
	if _, err := a.record(m, r.PathValue("process"), stream, int64(offset)); err != nil {
		return err
	}
	a.begin()
	return nil
}

// answering is the answer to a request for output. Its first bytes begin it; until then it can be an error.
type answering struct {
	http.ResponseWriter
	rc    *http.ResponseController
	begun bool
}

func newAnswering(w http.ResponseWriter) *answering {
	return &answering{ResponseWriter: w, rc: http.NewResponseController(w)}
}

func (a *answering) begin() {
	if !a.begun {
		a.Header().Set("Content-Type", "application/octet-stream")
		a.WriteHeader(http.StatusOK)
		a.begun = true
	}
}

// slowestOutput is how long a client may take for a piece of output, for which the process may have to wait. A slower one is dropped, and can resume.
const slowestOutput = time.Minute

// send sends a piece. An error means that the client has gone, or is too slow.
func (a *answering) send(b []byte) error {
	a.begin()
	return errors.Join(deadline(a.rc, slowestOutput), write(a, b), a.rc.Flush(), deadline(a.rc, 0))
}

// piecesTogether bounds the pieces of output that are looked up together.
const piecesTogether = 1000

// record sends what the record has of an output from an offset on, and returns the offset that it has reached. The error is a Problem if the answer has
// not begun, and the record lacks what follows the offset.
func (a *answering) record(m *model, process, stream string, offset int64) (int64, error) {
	for after := uint64(0); ; {
		pieces := m.Output().Pieces(after, piecesTogether)
		for _, p := range pieces {
			after = p.Seq
			end := p.Offset + int64(len(p.Text))
			if p.Step != process || p.Stream != stream || end <= offset {
				continue
			}
			if p.Offset > offset {
				if a.begun {
					return offset, nil
				}
				return offset, gone(fmt.Sprintf("the output from offset %d on is not recorded", offset), p.Offset)
			}
			if err := a.send([]byte(p.Text[offset-p.Offset:])); err != nil {
				return offset, nil
			}
			offset = end
		}
		if len(pieces) < piecesTogether {
			return offset, nil
		}
	}
}

// gone returns the answer to a request for output that there is not any more.
func gone(detail string, first int64) error {
	return access.NewProblem(http.StatusGone, "output-gone", detail, fmt.Sprintf("continue at the offset %d", first))
}

// older sends from the records of a sandbox's runs what is not in memory any more, and returns the offset that it has reached.
func (h stateHandler) older(r *request, a *answering, runs []string, process, stream string, offset int64, missing *fleet.Gone) (next int64, err error) {
	next = offset
	full, unknown := false, false
	for _, id := range runs {
		m, err := h.modelOf(r, id)
		if errors.Is(err, store.ErrNotFound) { // nothing of the run has arrived in the store yet
			unknown = true
			continue
		}
		if err == nil {
			err = m.genuine()
		}
		if err == nil {
			next, err = a.record(m, process, stream, next)
		}
		if err != nil {
			return next, err
		}
		full = full || m.full
	}
	if next > offset || a.begun {
		return next, nil
	}
	if full && !unknown {
		return offset, gone(fmt.Sprintf("the output from offset %d on is not recorded: the record has as much as the project's record.output allows", offset), missing.First)
	}
	// what was written in the last second can be missing
	p := access.NewProblem(http.StatusServiceUnavailable, "output-later", fmt.Sprintf("the record has not reached offset %d", offset), fmt.Sprintf("try again, or continue at the offset %d", missing.First))
	p.After = time.Second
	return offset, p
}

// modelOf returns the model of a run.
func (h stateHandler) modelOf(r *request, id string) (*model, error) {
	run, err := h.named(r.Context(), r.who, id)
	if err != nil {
		return nil, err
	}
	return h.stories.model(r.Context(), run)
}
