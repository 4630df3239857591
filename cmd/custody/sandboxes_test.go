package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/replay/access"
)

// caller is a program that uses the API of a service.
type caller struct {
	*testing.T
	base, token string
}

func (c caller) do(method, path string, body any, headers ...string) (int, []byte) {
	c.Helper()
	var text io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case string:
		text, kind = strings.NewReader(b), "application/octet-stream"
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			c.Fatal(err)
		}
		text = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(c.Context(), method, c.base+"api/v1"+path, text)
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", kind)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		c.Fatal(err)
	}
	return res.StatusCode, answer
}

// ask makes a request that must be answered with a status, and decodes the answer into v unless that is nil.
func (c caller) ask(status int, method, path string, body, v any, headers ...string) {
	c.Helper()
	got, text := c.do(method, path, body, headers...)
	if got != status {
		c.Fatalf("%s %s: %d in place of %d: %.1000s", method, path, got, status, text)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal(text, v); err != nil {
		c.Fatalf("%s %s: %v: %.1000s", method, path, err, text)
	}
}

// TestSandboxes: a program creates a sandbox through the API, uses its processes, and destroys it; the record and the access log have it.
func TestSandboxes(t *testing.T) {
	apart := newSeparated(t)
	for name, s := range map[string]*served{"service": newServed(t), "separated": apart.served} {
		t.Run(name, func(t *testing.T) {
			admin := *s.admin
			admin.T = t
			c := caller{t, s.page(), admin.newToken("agents-"+name, string(access.Operator))}
			id := useSandbox(c)
			admin.verified(id)
			viewer := caller{t, s.page(), admin.newToken("viewer-"+name, string(access.Auditor))}
			viewer.ask(http.StatusForbidden, "POST", "/sandboxes", client.SandboxRequest{}, nil)
			var left client.Sandbox
			c.ask(http.StatusCreated, "POST", "/sandboxes", client.SandboxRequest{Session: "key", Metadata: map[string]string{"task": "8"}}, &left)
			for _, role := range access.Roles() {
				keyOnlyFor(caller{t, s.page(), admin.newToken("role-"+string(role)+"-"+name, string(role))}, role, left.ID)
			}
			c.ask(http.StatusCreated, "POST", "/sandboxes/"+left.ID+"/processes", client.ProcessRequest{Argv: []string{"sleep", "1000"}}, nil)
			s.stop() // ends the sandbox and closes the access log
			admin.verified(left.ID)
			var started, created bool
			for _, a := range admin.looks() {
				created = created || a.Route == "POST /api/v1/sandboxes" && a.Who == "agents-"+name
				started = started || a.Route == "POST /api/v1/sandboxes/{run}/processes" && string(a.About) == id
			}
			if !created || !started {
				t.Errorf("the access log has the creation: %v, the start of a process: %v", created, started)
			}
		})
	}
}

// keyOnlyFor checks that a role gets the session key of a sandbox only if it can use sandboxes.
func keyOnlyFor(c caller, role access.Role, id string) {
	c.Helper()
	var one client.Sandbox
	var list struct{ Sandboxes []client.Sandbox }
	c.ask(http.StatusOK, "GET", "/sandboxes", nil, &list)
	c.ask(http.StatusOK, "GET", "/sandboxes/"+id, nil, &one)
	for _, s := range append(list.Sandboxes, one) {
		if s.ID == id && ((s.Session == "key") != role.May(access.Operator) || s.Metadata["task"] != "8") {
			c.Errorf("the role %s gets the session %q and the metadata %v", role, s.Session, s.Metadata)
		}
	}
}

// useSandbox does what a program does with a sandbox, and returns its ID.
func useSandbox(c caller) string {
	c.Helper()
	var s, again client.Sandbox
	create := client.SandboxRequest{Metadata: map[string]string{"task": "7"}, Session: "one"}
	c.ask(http.StatusCreated, "POST", "/sandboxes", create, &s, "Idempotency-Key", "k")
	c.ask(http.StatusOK, "POST", "/sandboxes", create, &again, "Idempotency-Key", "k")
	c.ask(http.StatusConflict, "POST", "/sandboxes", client.SandboxRequest{}, nil, "Idempotency-Key", "k")
	if again.ID != s.ID || s.Metadata["task"] != "7" || s.State == "promised" || s.Template != "base" {
		c.Errorf("%+v, then %+v", s, again)
	}
	for _, beyond := range []client.SandboxRequest{{Template: "other"}, {Isolation: "none"}, {Project: "unknown"}, {Policy: "version: 1\negress: [{allow: example.com}]\n"}, {Policy: "x"}} {
		c.ask(http.StatusBadRequest, "POST", "/sandboxes", beyond, nil)
	}
	at := "/sandboxes/" + s.ID
	var cat, echo client.StartedProcess
	c.ask(http.StatusCreated, "POST", at+"/processes", client.ProcessRequest{Argv: []string{"cat"}, Stdin: true}, &cat)
	c.ask(http.StatusCreated, "POST", at+"/processes", client.ProcessRequest{Shell: "echo $A; id -un; pgrep -c cat; exit 3", Env: map[string]string{"A": "b c"}, User: "nobody"}, &echo)
	if _, out := c.do("GET", at+"/processes/"+echo.Name+"/output?follow=true", nil); string(out) != "b c\nnobody\n1\n" {
		c.Errorf("the output is %q", out)
	}
	c.ask(http.StatusOK, "GET", at+"/processes/"+echo.Name+"?wait=60", nil, &echo)
	if echo.ExitCode == nil || *echo.ExitCode != 3 || echo.Ended == nil {
		c.Errorf("the process is %+v", echo)
	}
	c.ask(http.StatusNoContent, "POST", at+"/processes/"+cat.Name+"/input", "hello ", nil)
	c.ask(http.StatusNoContent, "POST", at+"/processes/"+cat.Name+"/input?end=true", "world", nil)
	if _, out := c.do("GET", at+"/processes/"+cat.Name+"/output?follow=true&offset=6", nil); string(out) != "world" {
		c.Errorf("the output of cat is %q", out)
	}
	c.ask(http.StatusConflict, "POST", at+"/processes/"+cat.Name+"/input", "more", nil)
	var sleep client.StartedProcess
	c.ask(http.StatusCreated, "POST", at+"/processes", client.ProcessRequest{Argv: []string{"sleep", "1000"}, Terminal: &client.TerminalState{Rows: 24, Cols: 80}}, &sleep)
	c.ask(http.StatusNoContent, "POST", at+"/processes/"+sleep.Name+"/resize", client.TerminalState{Rows: 10, Cols: 20}, nil)
	c.ask(http.StatusNoContent, "POST", at+"/processes/"+sleep.Name+"/signal", client.SignalRequest{Signal: "SIGTERM"}, nil)
	c.ask(http.StatusOK, "GET", at+"/processes/"+sleep.Name+"?wait=60", nil, &sleep)
	if sleep.Signal != "SIGTERM" {
		c.Errorf("the signalled process is %+v", sleep)
	}
	for path, status := range map[string]int{
		"/sandboxes/r-unknown": http.StatusNotFound, at + "/processes/p99": http.StatusNotFound, at + "/processes/p1/output?stream=tty": http.StatusBadRequest,
		at + "/processes/p1/output?offset=100": http.StatusBadRequest, at + "?x=1": http.StatusBadRequest,
	} {
		c.ask(status, "GET", path, nil, nil)
	}
	for _, wrong := range []any{
		client.ProcessRequest{}, client.ProcessRequest{Argv: []string{"a\x00b"}}, client.ProcessRequest{Argv: []string{"true"}, Secrets: []string{"none"}},
		map[string]any{"argv": []string{"true"}, "unknown": 1}, client.ProcessRequest{Argv: []string{"true"}, Env: map[string]string{"a b": "c"}},
	} {
		c.ask(http.StatusBadRequest, "POST", at+"/processes", wrong, nil)
	}
	c.ask(http.StatusOK, "POST", at+"/extend", client.ExtendRequest{Seconds: 60}, &s)
	c.ask(http.StatusBadRequest, "POST", at+"/extend", client.ExtendRequest{Seconds: 1e6}, nil)
	var list struct{ Sandboxes []client.Sandbox }
	c.ask(http.StatusOK, "GET", "/sandboxes", nil, &list)
	if len(list.Sandboxes) != 1 || list.Sandboxes[0].State != "live" {
		c.Errorf("the sandboxes are %+v", list.Sandboxes)
	}
	c.ask(http.StatusNoContent, "DELETE", at, nil, nil)
	c.ask(http.StatusGone, "POST", at+"/processes", client.ProcessRequest{Argv: []string{"true"}}, nil)
	return s.ID
}
