package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/replay/access"
)

// Base is the path of the API.
const Base = "/api/v1"

// route is one operation of the API.
type route struct {
	method, pattern string // below Base
	rule            access.Rule
	params          []string // allowed in the query, besides tenant
	serve           func(http.ResponseWriter, *request) error
}

// name is the name in the access log.
func (rt *route) name() string { return rt.method + " " + Base + rt.pattern }

// streams reports whether the response is sent as it is produced, uncompressed.
func (rt *route) streams() bool { return slices.Contains([]string{"follow", "export"}, rt.rule.Action) }

func may(role access.Role, action string) access.Rule { return access.Rule{Role: role, Action: action} }

var (
	anybody  = access.Rule{Public: true, Action: "view"}
	view     = may(access.Viewer, "view")
	follow   = may(access.Viewer, "follow")
	searches = may(access.Viewer, "search")
	verifies = may(access.Auditor, "verify")
	exports  = may(access.Auditor, "export")
	reports  = may(access.Auditor, "report")
	audits   = may(access.Auditor, "view")
	notes    = may(access.Auditor, "note")
	manages  = may(access.Admin, "manage")
	operates = may(access.Operator, "manage")
	attends  = may(access.Operator, "view")
	streams  = may(access.Operator, "follow")
	logsIn   = may(access.Operator, "login")
)

// handlers are the parts of the API: each answers the routes of one resource, and holds what it needs for them.
type handlers struct {
	about    aboutHandler
	runs     runsHandler
	records  recordsHandler
	state    stateHandler
	live     liveHandler
	notes    notesHandler
	checks   checksHandler
	exports  exportsHandler
	jobs     jobsHandler
	search   searchHandler
	reports  reportsHandler
	accesses accessesHandler
	views    viewsHandler
	tokens   tokensHandler

	sandboxes sandboxesHandler
	ports     portsHandler
}

// routes returns all routes except those for sessions, which are the Gate's.
func (h *handlers) routes() []*route {
	page := []string{"limit", "cursor"}
	span := []string{"from", "to"}
	dated := slices.Concat(span, page)
	filter := []string{"kind", "step", "observer", "verdict", "proc", "q", "from", "to"}
	return []*route{
		{"GET", "/openapi.json", anybody, nil, h.about.openapi},
		{"GET", "/health", anybody, nil, h.about.health},
		{"GET", "/runs", view, append([]string{"status", "project", "findings"}, dated...), h.runs.list},
		{"GET", "/runs/{run}", view, nil, h.runs.one},
		{"GET", "/runs/{run}/lineage", view, nil, h.runs.lineage},
		{"GET", "/runs/{run}/records", view, slices.Concat(filter, page, []string{"after", "order", "tag"}), h.records.list},
		{"GET", "/runs/{run}/records/{seq}", view, nil, h.records.one},
		{"GET", "/runs/{run}/records/{seq}/proof", verifies, nil, h.records.proof},
		{"GET", "/runs/{run}/state", view, []string{"at", "lines"}, h.state.state},
		{"GET", "/runs/{run}/changes", view, span, h.state.changes},
		{"GET", "/runs/{run}/lanes", view, append([]string{"columns"}, span...), h.state.lanes},
		{"GET", "/runs/{run}/processes", view, nil, h.state.processes},
		{"GET", "/runs/{run}/connections", view, nil, h.state.connections},
		{"GET", "/runs/{run}/files", view, nil, h.state.files},
		{"GET", "/runs/{run}/calls", view, nil, h.state.calls},
		{"GET", "/runs/{run}/credentials", view, nil, h.state.credentials},
		{"GET", "/runs/{run}/findings", view, nil, h.state.findings},
		{"GET", "/runs/{run}/output", view, []string{"after", "limit"}, h.state.output},
		{"GET", "/runs/{run}/live", follow, []string{"after"}, h.live.stream},
		{"GET", "/runs/{run}/notes", view, nil, h.notes.list},
		{"POST", "/runs/{run}/notes", notes, nil, h.notes.create},
		{"GET", "/runs/{run}/notes/{id}/proof", verifies, nil, h.notes.proof},
		{"GET", "/runs/{run}/verify", verifies, nil, h.checks.verify},
		{"POST", "/runs/{run}/verify", verifies, nil, h.checks.verify},
		{"GET", "/runs/{run}/bundle", exports, []string{"from_seq", "to_seq", "since"}, h.exports.bundle},
		{"GET", "/runs/{run}/export", exports, append([]string{"format"}, filter...), h.exports.export},
		{"GET", "/compare", view, []string{"a", "b"}, h.runs.compare},
		{"GET", "/search", searches, append([]string{"hash", "host", "path", "secret", "rule", "argv", "q", "kind"}, dated...), h.search.search},
		{"GET", "/findings", searches, append([]string{"rule"}, dated...), h.search.findings},
		{"POST", "/exports", exports, nil, h.jobs.create},
		{"GET", "/exports", exports, nil, h.jobs.list},
		{"GET", "/exports/{id}", exports, nil, h.jobs.one},
		{"GET", "/exports/{id}/file", exports, nil, h.jobs.file},
		{"DELETE", "/exports/{id}", exports, nil, h.jobs.end},
		{"GET", "/reports", reports, append([]string{"framework", "run", "format"}, span...), h.reports.report},
		{"GET", "/access", audits, append([]string{"about"}, dated...), h.accesses.list},
		{"GET", "/views", view, nil, h.views.list},
		{"POST", "/views", view, nil, h.views.create},
		{"PUT", "/views/{id}", view, nil, h.views.change},
		{"DELETE", "/views/{id}", view, nil, h.views.remove},
		{"GET", "/tokens", manages, nil, h.tokens.list},
		{"POST", "/tokens", manages, nil, h.tokens.create},
		{"DELETE", "/tokens/{id}", manages, nil, h.tokens.remove},
		{"POST", "/sandboxes", operates, nil, h.sandboxes.create},
		{"GET", "/sandboxes", view, nil, h.sandboxes.list},
		{"GET", "/sandboxes/{run}", view, nil, h.sandboxes.one},
		{"GET", "/quotas", view, nil, h.sandboxes.quotas},
		{"DELETE", "/sandboxes/{run}", operates, nil, h.sandboxes.destroy},
		{"POST", "/sandboxes/{run}/extend", operates, nil, h.sandboxes.extend},
		{"POST", "/sandboxes/{run}/pause", operates, nil, pauses{&h.sandboxes}.pause},
		{"POST", "/sandboxes/{run}/resume", operates, nil, pauses{&h.sandboxes}.resume},
		{"POST", "/sandboxes/{run}/fork", operates, nil, pauses{&h.sandboxes}.fork},
		{"POST", "/sandboxes/{run}/processes", operates, nil, h.sandboxes.start},
		{"GET", "/sandboxes/{run}/processes", attends, nil, h.sandboxes.started},
		{"GET", "/sandboxes/{run}/processes/{process}", attends, []string{"wait"}, h.sandboxes.startedOne},
		{"GET", "/sandboxes/{run}/processes/{process}/output", streams, []string{"stream", "offset", "follow"}, h.sandboxes.output},
		{"POST", "/sandboxes/{run}/processes/{process}/input", operates, []string{"end"}, h.sandboxes.input},
		{"POST", "/sandboxes/{run}/processes/{process}/signal", operates, nil, h.sandboxes.signal},
		{"GET", "/sandboxes/{run}/ports", attends, nil, h.ports.list},
		{"GET", "/sandboxes/{run}/ports/{port}", streams, nil, h.ports.connect},
		{"POST", "/sandboxes/{run}/ports/{port}/login", logsIn, nil, h.ports.login},
		{"POST", "/sandboxes/{run}/processes/{process}/resize", operates, nil, h.sandboxes.resize},
		{"GET", "/sandboxes/{run}/files", attends, []string{"path", "link", "user"}, h.sandboxes.fileRoute(channel.FileStat)},
		{"DELETE", "/sandboxes/{run}/files", operates, []string{"path", "recursive", "user"}, h.sandboxes.fileRoute(channel.FileRemove)},
		{"GET", "/sandboxes/{run}/files/list", attends, []string{"path", "after", "limit", "user"}, h.sandboxes.listFiles},
		{"GET", "/sandboxes/{run}/files/content", streams, []string{"path", "offset", "length", "user"}, h.sandboxes.sendFile(channel.FileRead, "application/octet-stream")},
		{"PUT", "/sandboxes/{run}/files/content", operates, []string{"path", "mode", "exclusive", "user"}, h.sandboxes.takeFile(channel.FileWrite)},
		{"GET", "/sandboxes/{run}/files/archive", streams, []string{"path", "user"}, h.sandboxes.sendFile(channel.FilePack, "application/x-tar")},
		{"PUT", "/sandboxes/{run}/files/archive", operates, []string{"path", "user"}, h.sandboxes.takeFile(channel.FileUnpack)},
		{"GET", "/sandboxes/{run}/files/watch", streams, []string{"path", "recursive", "user"}, fileWatches{&h.sandboxes}.follow},
		{"POST", "/sandboxes/{run}/files/directory", operates, []string{"path", "mode", "recursive", "user"}, h.sandboxes.fileRoute(channel.FileMkdir)},
		{"POST", "/sandboxes/{run}/files/move", operates, []string{"path", "to", "exclusive", "user"}, h.sandboxes.fileRoute(channel.FileMove)},
	}
}

// Route describes a route.
type Route struct {
	Rule   access.Rule
	Params []string // that the query may have, tenant besides
}

// Routes returns all routes by method and pattern; those of sessions are the Gate's.
func Routes() map[string]Route {
	all := map[string]Route{}
	for _, rt := range new(handlers).routes() {
		all[rt.name()] = Route{rt.rule, slices.Clone(rt.params)}
	}
	return all
}

// mux serves the routes. It answers other requests with a problem, too.
func (s *Server) mux(o *Options, h *handlers) http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{"/session": {"GET", "POST", "DELETE"}}
	o.Gate.Mount(mux)
	for _, rt := range h.routes() {
		mux.Handle(rt.name(), o.Gate.Guard(rt.name(), rt.rule, s.handle(rt)))
		methods[rt.pattern] = append(methods[rt.pattern], rt.method)
	}
	for pattern, allowed := range methods {
		mux.Handle(Base+pattern, notAllowed(allowed))
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		access.NewProblem(http.StatusNotFound, "address", "there is nothing at this address", "GET "+Base+"/openapi.json lists the routes").Write(w, r)
	})
	if o.Assets != nil {
		mux.Handle("/", pageOf(o.Assets))
	}
	ports := &portProxy{&h.ports, o.PortOf}
	return s.secured(ports.before(mux, s, o.Gate))
}

func notAllowed(methods []string) http.Handler {
	slices.Sort(methods)
	allow := strings.Join(methods, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		access.NewProblem(http.StatusMethodNotAllowed, "method", "this address does not take that method", "it takes "+allow).Write(w, r)
	})
}

// handle runs a route's handler and answers its error.
func (s *Server) handle(rt *route) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := parse(r, rt)
		if err == nil {
			req.who, err = whoIs(r, rt.rule)
		}
		if err == nil {
			err = rt.serve(w, req)
		}
		if err != nil {
			s.fail(w, r, err)
		}
	})
	if rt.streams() {
		return h
	}
	return zipped(h)
}
