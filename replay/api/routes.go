package api

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Base is where the API stands.
const Base = "/api/v1"

// route is one thing that the API does.
type route struct {
	method, pattern string // below Base
	rule            Rule
	params          []string // all that the query may have; tenant besides
	serve           func(*Server, http.ResponseWriter, *request) error
}

// name is how the access log has it.
func (rt *route) name() string { return rt.method + " " + Base + rt.pattern }

func view(role Role) Rule { return Rule{Role: role, Action: "view"} }

var filterParams = []string{"kind", "step", "observer", "verdict", "proc", "q", "from", "to"}

// routes is all that the API does.
func routes() []*route {
	page := []string{"limit", "cursor"}
	records := slices.Concat(filterParams, page, []string{"order"})
	return []*route{
		{"GET", "/openapi.json", Rule{Public: true, Action: "view"}, nil, (*Server).openapi},
		{"GET", "/health", Rule{Public: true, Action: "view"}, nil, (*Server).health},
		{"GET", "/runs", view(Viewer), slices.Concat([]string{"status", "project", "findings", "from", "to"}, page), (*Server).runs},
		{"GET", "/runs/{run}", view(Viewer), nil, (*Server).run},
		{"GET", "/runs/{run}/records", view(Viewer), records, (*Server).records},
		{"GET", "/runs/{run}/records/{seq}", view(Viewer), nil, (*Server).record},
		{"GET", "/runs/{run}/state", view(Viewer), []string{"at", "lines"}, (*Server).state},
	}
}

// mux serves the table. What is not there answers a problem too.
func (s *Server) mux() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, rt := range routes() {
		mux.Handle(rt.method+" "+Base+rt.pattern, s.opt.Gate.Guard(rt.name(), rt.rule, s.handle(rt)))
		methods[rt.pattern] = append(methods[rt.pattern], rt.method)
	}
	for pattern, allowed := range methods {
		mux.Handle(Base+pattern, notAllowed(allowed))
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, _ *http.Request) {
		problem(http.StatusNotFound, "there is nothing at this address", "GET "+Base+"/openapi.json describes what there is").write(w)
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
		problem(http.StatusMethodNotAllowed, "this address does not take "+quoteMethod(r.Method), "it takes "+allow).write(w)
	})
}

// quoteMethod keeps what a client may put there out of the answer.
func quoteMethod(m string) string {
	if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}, m) {
		return m
	}
	return "that method"
}

// handle runs a route's handler and answers what it could not.
func (s *Server) handle(rt *route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
}

// fail answers err, and tells the log what the asker is not told.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // nobody is there
	}
	p := problemOf(err)
	if p.Status >= 500 {
		told := *p
		told.Instance = newID()
		s.log.Error("a request failed", "id", told.Instance, "route", r.Pattern, "err", err)
		p = &told
	}
	p.write(w)
}

// errCut ends an answer that had begun: the connection breaks off, so that nobody takes a part for the whole.
var errCut = errors.New("the answer breaks off")

// Routes returns each route's method and pattern and the least role that may use it, "" where anybody may.
func Routes() map[string]Role {
	all := map[string]Role{}
	for _, rt := range routes() {
		all[rt.name()] = rt.rule.Role
	}
	return all
}

// patterns returns the names of all routes in order.
func patterns() []string {
	return slices.SortedFunc(maps.Keys(Routes()), func(a, b string) int { return cmp.Compare(a, b) })
}
