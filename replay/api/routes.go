package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/custody-project/custody/replay/access"
)

// Base is where the API stands.
const Base = "/api/v1"

// route is one thing that the API does.
type route struct {
	method, pattern string // below Base
	rule            access.Rule
	params          []string // all that the query may have; tenant besides
	serve           func(*Server, http.ResponseWriter, *request) error
}

// name is how the access log has it.
func (rt *route) name() string { return rt.method + " " + Base + rt.pattern }

// streams reports whether the answer goes out as it is made, uncompressed.
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
	looks    = may(access.Auditor, "view")
	notes    = may(access.Auditor, "note")
	manages  = may(access.Admin, "manage")
)

// routes is all that the API does but sessions, which are the Gate's.
func routes() []*route {
	page := []string{"limit", "cursor"}
	span := []string{"from", "to"}
	dated := slices.Concat(span, page)
	filter := []string{"kind", "step", "observer", "verdict", "proc", "q", "from", "to"}
	return []*route{
		{"GET", "/openapi.json", anybody, nil, (*Server).openapi},
		{"GET", "/health", anybody, nil, (*Server).health},
		{"GET", "/runs", view, append([]string{"status", "project", "findings"}, dated...), (*Server).runs},
		{"GET", "/runs/{run}", view, nil, (*Server).run},
		{"GET", "/runs/{run}/records", view, slices.Concat(filter, page, []string{"after", "order", "tag"}), (*Server).records},
		{"GET", "/runs/{run}/records/{seq}", view, nil, (*Server).record},
		{"GET", "/runs/{run}/records/{seq}/proof", verifies, nil, (*Server).proof},
		{"GET", "/runs/{run}/state", view, []string{"at", "lines"}, (*Server).state},
		{"GET", "/runs/{run}/changes", view, span, (*Server).changes},
		{"GET", "/runs/{run}/lanes", view, append([]string{"columns"}, span...), (*Server).lanes},
		{"GET", "/runs/{run}/processes", view, nil, (*Server).processes},
		{"GET", "/runs/{run}/connections", view, nil, (*Server).connections},
		{"GET", "/runs/{run}/files", view, nil, (*Server).files},
		{"GET", "/runs/{run}/calls", view, nil, (*Server).calls},
		{"GET", "/runs/{run}/credentials", view, nil, (*Server).credentials},
		{"GET", "/runs/{run}/findings", view, nil, (*Server).findings},
		{"GET", "/runs/{run}/output", view, []string{"after", "limit"}, (*Server).output},
		{"GET", "/runs/{run}/live", follow, []string{"after"}, (*Server).live},
		{"GET", "/runs/{run}/notes", view, nil, (*Server).notes},
		{"POST", "/runs/{run}/notes", notes, nil, (*Server).newNote},
		{"GET", "/runs/{run}/notes/{id}/proof", verifies, nil, (*Server).noteProof},
		{"GET", "/runs/{run}/verify", verifies, nil, (*Server).verify},
		{"POST", "/runs/{run}/verify", verifies, nil, (*Server).verify},
		{"GET", "/runs/{run}/bundle", exports, []string{"from_seq", "to_seq", "since"}, (*Server).bundle},
		{"GET", "/runs/{run}/export", exports, append([]string{"format"}, filter...), (*Server).export},
		{"GET", "/compare", view, []string{"a", "b"}, (*Server).compare},
		{"GET", "/search", searches, append([]string{"hash", "host", "path", "secret", "rule", "argv", "q", "kind"}, dated...), (*Server).search},
		{"GET", "/findings", searches, append([]string{"rule"}, dated...), (*Server).allFindings},
		{"POST", "/exports", exports, nil, (*Server).newJob},
		{"GET", "/exports", exports, nil, (*Server).jobList},
		{"GET", "/exports/{id}", exports, nil, (*Server).job},
		{"GET", "/exports/{id}/file", exports, nil, (*Server).jobFile},
		{"DELETE", "/exports/{id}", exports, nil, (*Server).endJob},
		{"GET", "/reports", reports, append([]string{"framework", "run", "format"}, span...), (*Server).report},
		{"GET", "/access", looks, dated, (*Server).accesses},
		{"GET", "/views", view, nil, (*Server).views},
		{"POST", "/views", view, nil, (*Server).newView},
		{"PUT", "/views/{id}", view, nil, (*Server).changeView},
		{"DELETE", "/views/{id}", view, nil, (*Server).endView},
		{"GET", "/tokens", manages, nil, (*Server).tokens},
		{"POST", "/tokens", manages, nil, (*Server).newToken},
		{"DELETE", "/tokens/{id}", manages, nil, (*Server).endToken},
	}
}

// Route is what a route asks for.
type Route struct {
	Rule   access.Rule
	Params []string // that the query may have, tenant besides
}

// Routes returns all routes by method and pattern; those of sessions are the Gate's.
func Routes() map[string]Route {
	all := map[string]Route{}
	for _, rt := range routes() {
		all[rt.name()] = Route{rt.rule, slices.Clone(rt.params)}
	}
	return all
}

// mux serves the table. What is not there answers a problem too.
func (s *Server) mux() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{"/session": {"GET", "POST", "DELETE"}}
	s.opt.Gate.Mount(mux)
	for _, rt := range routes() {
		mux.Handle(rt.name(), s.opt.Gate.Guard(rt.name(), rt.rule, s.handle(rt)))
		methods[rt.pattern] = append(methods[rt.pattern], rt.method)
	}
	for pattern, allowed := range methods {
		mux.Handle(Base+pattern, notAllowed(allowed))
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		access.NewProblem(http.StatusNotFound, "address", "there is nothing at this address", "GET "+Base+"/openapi.json describes what there is").Write(w, r)
	})
	if s.opt.Assets != nil {
		mux.Handle("/", s.assets())
	}
	return s.outer(mux)
}

func notAllowed(methods []string) http.Handler {
	slices.Sort(methods)
	allow := strings.Join(methods, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		access.NewProblem(http.StatusMethodNotAllowed, "method", "this address does not take that method", "it takes "+allow).Write(w, r)
	})
}

// handle runs a route's handler and answers what it could not.
func (s *Server) handle(rt *route) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := parse(r, rt)
		if err == nil {
			req.who, err = whoIs(r, rt.rule)
		}
		if err == nil {
			err = rt.serve(s, w, req)
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
