package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/replay/views"
)

// TestViews: each has views of his own in each tenant, which lead into the page only.
func TestViews(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann, ben, acme := w.token("", access.Viewer), w.token("", access.Admin), w.token("acme", access.Viewer)
	list := func(token string) []views.View {
		var all struct{ Views []views.View }
		w.get("/views", token).json(t, &all)
		return all.Views
	}
	put := func(method, path, token, name, addr string) reply {
		body, err := json.Marshal(api.ViewRequest{Name: name, Address: addr})
		if err != nil {
			t.Fatal(err)
		}
		return w.do(method, path, token, string(body))
	}
	var v views.View
	put("POST", "/views", ann, "<script>denials", "#/runs/r-1?verdict=deny&at=%2B1s").json(t, &v)
	if all := list(ann); len(all) != 1 || all[0] != v || v.Name != "<script>denials" {
		t.Errorf("%+v", all)
	}
	for _, other := range []string{ben, acme} {
		if all := list(other); len(all) != 0 {
			t.Errorf("another sees %+v", all)
		}
		put("PUT", "/views/"+v.ID, other, "x", "#/runs").problem(t, http.StatusNotFound)
		w.do("DELETE", "/views/"+v.ID, other, "").problem(t, http.StatusNotFound)
	}
	for _, addr := range []string{"", "https://evil.example/", "//evil.example", "javascript:alert(1)", "#once=cso_x", "#/nothing", "/runs", "#/runs\n", "#/runs?q=" + strings.Repeat("x", 3000)} {
		put("POST", "/views", ann, "x", addr).problem(t, http.StatusBadRequest)
		put("PUT", "/views/"+v.ID, ann, "x", addr).problem(t, http.StatusBadRequest)
	}
	put("POST", "/views", ann, "\u202e", "#/runs").problem(t, http.StatusBadRequest)
	w.do("POST", "/views", ann, `{"name":"x","address":"#/runs","owner":"ben"}`).problem(t, http.StatusBadRequest)
	put("PUT", "/views/"+v.ID, ann, "renamed", v.Address).json(t, &v)
	if all := list(ann); len(all) != 1 || all[0].Name != "renamed" {
		t.Errorf("%+v", all)
	}
	if r := w.do("DELETE", "/views/"+v.ID, ann, ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("%s", r.Status)
	}
	w.do("DELETE", "/views/"+v.ID, ann, "").problem(t, http.StatusNotFound)
	w.do("DELETE", "/views/..%2f..%2fhost.yaml", ann, "").problem(t, http.StatusNotFound)
	if all := list(ann); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}
