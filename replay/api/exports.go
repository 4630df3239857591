package api

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/store"
)

const (
	// maxBody bounds the body of a request.
	maxBody = 256 << 10
	// maxJobRuns bounds the runs of one export, and maxReportRuns those of one report.
	maxJobRuns, maxReportRuns = 10_000, 500
)

// body reads a request's JSON into what to points to. Unknown fields are refused.
func (r *request) body(to any) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return access.NewProblem(http.StatusUnsupportedMediaType, "media-type", "the body is not of the type application/json", "set Content-Type")
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return bad("send it again", "the body could not be read")
	}
	if len(text) > maxBody {
		return access.NewProblem(http.StatusRequestEntityTooLarge, "body", "the body is too long", "name fewer runs, or a time from and to")
	}
	return strict(text, to)
}

// JobRequest selects the runs of an export: by name, or all that began within a time range.
type JobRequest struct {
	Runs   []string     `json:"runs"`
	From   string       `json:"from"`
	To     string       `json:"to"`
	Format string       `json:"format"`
	Kinds  []audit.Kind `json:"kinds"`
}

func (q JobRequest) check() error {
	if (len(q.Runs) == 0) == (q.From == "" && q.To == "") {
		return bad("name runs, or a time by from and to, and not both", "no runs are selected")
	}
	if len(q.Runs) > maxJobRuns {
		return bad("name fewer, or a time by from and to", "there are %d runs, at most %d are allowed", len(q.Runs), maxJobRuns)
	}
	for _, k := range q.Kinds {
		if !k.Known() || k.InAccessLog() {
			return bad("kinds are "+kindNames(), "%.60q is not a kind of a run's records", k)
		}
	}
	return nil
}

// owner names the owner of a job.
func (r *request) owner() string { return r.who.Tenant + "\x00" + r.who.Via + "\x00" + r.who.Name }

// jobsHandler answers and changes the export jobs of a principal.
type jobsHandler struct {
	runFinder
	jobs      *jobs
	formats   formats
	downloads *downloads
}

func (h *jobsHandler) create(w http.ResponseWriter, r *request) error {
	if h.jobs.dir == "" {
		return errNotHere("export jobs")
	}
	var q JobRequest
	if err := r.body(&q); err != nil {
		return err
	}
	if err := q.check(); err != nil {
		return err
	}
	e, err := h.formats.named(orElse(q.Format, "ndjson"))
	if err != nil {
		return err
	}
	runs, err := h.chosen(r, q)
	if err != nil {
		return err
	}
	if e.OneRun && len(runs) != 1 {
		return bad("choose one run", "%s is of one run, and %d are chosen", e.Name, len(runs))
	}
	one := &job{owner: r.owner(), export: e, filter: replay.Filter{Kinds: q.Kinds}, runs: runs}
	one.Format, one.Runs = e.Name, len(runs)
	made, err := h.jobs.add(one)
	if err != nil {
		return err
	}
	w.Header().Set("Location", Base+"/exports/"+made.ID)
	return answerWith(w, http.StatusAccepted, made)
}

// chosen returns the runs that an export contains.
func (h *jobsHandler) chosen(r *request, q JobRequest) ([]store.Run, error) {
	if len(q.Runs) > 0 {
		return h.allNamed(r, q.Runs)
	}
	from, to, err := dates(q.From, q.To)
	if err != nil {
		return nil, err
	}
	return h.during(r, store.Filter{From: from, To: to}, maxJobRuns)
}

func (h *jobsHandler) list(w http.ResponseWriter, r *request) error {
	return answer(w, struct {
		Exports []Job `json:"exports"`
	}{h.jobs.of(r.owner())})
}

func (h *jobsHandler) one(w http.ResponseWriter, r *request) error {
	one, _, err := h.jobs.get(r.owner(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return answer(w, one)
}

func (h *jobsHandler) end(w http.ResponseWriter, r *request) error {
	if err := h.jobs.end(r.owner(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *jobsHandler) file(w http.ResponseWriter, r *request) error {
	one, e, err := h.jobs.get(r.owner(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if one.State != Done {
		return access.NewProblem(http.StatusConflict, "not-done", "the export is "+string(one.State), "GET /api/v1/exports/"+one.ID+" says when it is done")
	}
	f, err := regular.Open(h.jobs.file(one.ID))
	if err != nil {
		return err
	}
	defer f.Close()
	return h.downloads.send(w, r, e.Type, "export-"+one.ID+"."+e.Suffix, func(w io.Writer) error {
		_, err := io.Copy(w, f)
		return err
	})
}

// strict decodes one JSON value; a field that to does not have is an error.
func strict(text []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return bad("openapi.json has its schema", "the body cannot be read: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return bad("send one JSON object", "something follows the body")
	}
	return nil
}
