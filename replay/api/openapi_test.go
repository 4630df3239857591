package api_test

import (
	"encoding"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/replay/views"
)

// sessions are the Gate's own routes.
var sessions = []string{"GET /api/v1/session", "POST /api/v1/session", "DELETE /api/v1/session"}

// TestDocument: each route is in the document with its role and its parameters, and nothing else is.
func TestDocument(t *testing.T) {
	t.Parallel()
	doc := loadDocument(t)
	routes := api.Routes()
	var documented []string
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			name := method + " " + api.Base + path
			documented = append(documented, name)
			if slices.Contains(sessions, name) {
				continue
			}
			rt, there := routes[name]
			if !there {
				t.Errorf("%s is in the document only", name)
				continue
			}
			if got, _ := op.Extensions["x-role"].(string); got != string(rt.Rule.Role) {
				t.Errorf("%s is for %q, the document says %q", name, rt.Rule.Role, got)
			}
			if public := op.Security != nil && len(*op.Security) == 0; public != rt.Rule.Public {
				t.Errorf("%s: public is %v, the document says %v", name, rt.Rule.Public, public)
			}
			want := slices.Clone(rt.Params)
			if !rt.Rule.Public {
				want = append(want, "tenant")
			}
			slices.Sort(want)
			if got := queryOf(op); !slices.Equal(got, want) {
				t.Errorf("%s takes %v, the document says %v", name, want, got)
			}
		}
	}
	for name := range routes {
		if !slices.Contains(documented, name) {
			t.Errorf("%s is not in the document", name)
		}
	}
}

func queryOf(op *openapi3.Operation) []string {
	var names []string
	for _, p := range op.Parameters {
		if p.Value.In == "query" {
			names = append(names, p.Value.Name)
		}
	}
	slices.Sort(names)
	return names
}

// TestSchemas: each schema has the fields that the code has, and the same ones are always there.
func TestSchemas(t *testing.T) {
	t.Parallel()
	doc := loadDocument(t)
	types := map[string]reflect.Type{}
	for _, v := range []any{
		api.RunItem{}, api.RunDetail{}, api.Verification{}, api.Comparison{}, api.Lineage{}, api.FoundFinding{}, api.AccessEvent{}, api.RunNote{}, api.NoteRequest{}, views.View{}, api.ViewRequest{}, api.Job{}, api.TokenRequest{}, api.JobRequest{}, api.Health{}, api.Quotas{},
		replay.Why{}, replay.Finding{}, api.State{}, api.Changes{}, api.Lanes{}, replay.Proc{}, replay.Connection{}, replay.FileHistory{},
		replay.Call{}, replay.Credential{}, replay.Piece{}, access.Token{}, access.Principal{}, access.Problem{}, proof.RecordProof{},
		client.Sandbox{}, client.SandboxRequest{}, client.ExtendRequest{}, client.ForkRequest{}, client.ProcessRequest{}, client.StartedProcess{}, client.SignalRequest{},
		client.FileInfo{}, client.FileList{}, client.DirectoryChange{},
	} {
		gather(types, reflect.TypeOf(v))
	}
	for name, typ := range types {
		schema := doc.Components.Schemas[name]
		if schema == nil {
			t.Errorf("the document has no schema %s", name)
			continue
		}
		var all, always []string
		eachField(typ, func(name string, _ reflect.Type, optional bool) {
			all = append(all, name)
			if !optional {
				always = append(always, name)
			}
		})
		slices.Sort(all)
		if got := slices.Sorted(maps.Keys(schema.Value.Properties)); !slices.Equal(got, all) {
			t.Errorf("%s has %v, the document says %v", name, all, got)
		}
		slices.Sort(always)
		required := slices.Sorted(slices.Values(schema.Value.Required))
		if asked := strings.HasSuffix(name, "Request"); !asked && !slices.Equal(required, always) {
			t.Errorf("%s always has %v, the document says %v", name, always, required)
		}
	}
}

// gather adds a struct and all in it that has a schema of its own.
func gather(types map[string]reflect.Type, t reflect.Type) {
	switch {
	case t == reflect.TypeFor[time.Time](), t == reflect.TypeFor[audit.Text](), t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		gather(types, t.Elem())
	case t.Kind() == reflect.Struct && types[t.Name()] == nil:
		types[t.Name()] = t
		eachField(t, func(_ string, field reflect.Type, _ bool) { gather(types, field) })
	}
}

func eachField(t reflect.Type, f func(name string, field reflect.Type, optional bool)) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-" || !field.IsExported():
		case field.Anonymous && tag == "":
			eachField(field.Type, f)
		default:
			f(name, field.Type, strings.Contains(options, "omit"))
		}
	}
}

// TestServedDocument: anyone gets the document, and it is the one in the tree.
func TestServedDocument(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var served, own map[string]any
	w.get("/openapi.json", "").json(t, &served)
	text, err := loadDocument(t).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &own); err != nil {
		t.Fatal(err)
	}
	if a, b := len(served["paths"].(map[string]any)), len(own["paths"].(map[string]any)); a != b || a < 30 {
		t.Errorf("%d paths are served, %d are in the tree", a, b)
	}
	var health api.Health
	w.get("/health", "").json(t, &health)
	if health.Store != "ok" {
		t.Errorf("%+v", health)
	}
}

// TestEveryRoute asks each route without a credential, with too low a role, and with one that is enough.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.whole("r-one", 40)
	below := map[access.Role]access.Role{access.Auditor: access.Viewer, access.Operator: access.Auditor, access.Admin: access.Operator}
	for name, rt := range api.Routes() {
		method, path, _ := strings.Cut(name, " "+api.Base)
		path = strings.NewReplacer("{run}", "r-one", "{seq}", "3", "{id}", "nobody", "{process}", "p1").Replace(path)
		switch path {
		case "/compare":
			path += "?a=r-one&b=r-one"
		case "/search":
			path += "?q=git"
		case "/runs/r-one/live":
			continue // TestLive
		}
		if rt.Rule.Public {
			continue
		}
		w.do(method, path, "", "").problem(t, http.StatusUnauthorized)
		if less, any := below[rt.Rule.Role]; any {
			w.do(method, path, w.token("", less), "").problem(t, http.StatusForbidden)
		}
		got := w.do(method, path, w.token("", rt.Rule.Role), "")
		if got.StatusCode == http.StatusUnauthorized || got.StatusCode == http.StatusForbidden || got.StatusCode >= 500 {
			t.Errorf("%s: %s\n%s", name, got.Status, got.body)
		}
		if got := got.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control is %q", name, got)
		}
	}
}
