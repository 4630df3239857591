package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/notify"
)

// webhookServer is a webhook's endpoint. It refuses messages that are not signed with its key.
type webhookServer struct {
	*httptest.Server
	key []byte

	mu  sync.Mutex // guards got
	got []notify.Message
}

// receive serves until the test ends. No message may have value in it.
func receive(t *testing.T, value string) *webhookServer {
	r := &webhookServer{key: []byte("a-key-of-24-bytes-at-least!")}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		mac := hmac.New(sha256.New, r.key)
		fmt.Fprintf(mac, "%s.%s.%s", req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp"), body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); req.Header.Get("webhook-signature") != want {
			t.Errorf("signature %q, want %q", req.Header.Get("webhook-signature"), want)
		}
		if strings.Contains(string(body), value) {
			t.Errorf("the value leaves: %s", body)
		}
		var m notify.Message
		if err := json.Unmarshal(body, &m); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, m)
	}))
	t.Cleanup(r.Close)
	return r
}

// env is the environment in which a host has the receiver's key.
func (r *webhookServer) env() string {
	return "NOTIFY_KEY=whsec_" + base64.StdEncoding.EncodeToString(r.key)
}

// host returns a host.yaml that sends to the receiver, and whose hook writes messages of the types to a file.
func (r *webhookServer) host(file, types string) string {
	return fmt.Sprintf(`version: 1
notify:
  webhooks: [{name: ops, url: %q, key: "env:NOTIFY_KEY"}]
  hooks: [{name: after, argv: [/bin/sh, -c, 'cat >> "$0"', %s], on: [%s]}]
`, r.URL, file, types)
}

// take returns the messages since the last call.
func (r *webhookServer) take() []notify.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.got
	r.got = nil
	return all
}

// TestNotified: a run whose step prints a secret's value sends its finding and the freeze to a webhook, signed and without the
// value, and its end to a hook.
func TestNotified(t *testing.T) {
	t.Parallel()
	to := receive(t, canary)
	d := newDoor(t)
	d.env = []string{"CANARY=" + canary, to.env()}
	ended := filepath.Join(d.dir, "ended")
	d.write(filepath.Join(d.home, "host.yaml"), to.host(ended, "end"))
	d.project(lease + "anomaly: freeze\nlimits: {time: 6s}\n")
	d.must(124, "run", "--secret", "canary", "--", "sh", "-c", `echo "$CANARY"; sleep 100`)
	run := d.runs()[0].ID
	got := map[string]notify.Message{}
	for _, m := range to.take() {
		got[m.Type] = m
	}
	if m := got["finding"]; m.Run != run || m.Rule != "secret-in-output" || m.Seq == 0 {
		t.Errorf("the finding's message: %+v", m)
	}
	if m := got["frozen"]; m.Run != run {
		t.Errorf("the freeze's message: %+v", m)
	}
	line, err := os.ReadFile(ended)
	var m notify.Message
	if err != nil || json.Unmarshal(line, &m) != nil || m.Type != "end" || m.Run != run {
		t.Errorf("the hook got %q, %v", line, err)
	}
	d.verified(run)

	d.project("version: 1\nnotify: {hooks: [{name: x, argv: [/bin/true]}]}\n")
	d.contains(d.must(125, "policy", "check").stderr, `unknown key "notify"`)
}

// TestNotifiedChecks: what fsck, verify and monitor find is sent to a webhook and to a hook; what they find well is not.
func TestNotifiedChecks(t *testing.T) {
	t.Parallel()
	to := receive(t, "no such text")
	d := newDoor(t)
	d.env = []string{to.env()}
	heard := filepath.Join(d.dir, "heard")
	d.write(filepath.Join(d.home, "host.yaml"), to.host(heard, "verify"))
	h, err := host.Open(d.home)
	if err != nil {
		t.Fatal(err)
	}
	hostKey := strings.TrimSpace(d.must(0, "key", "show").stdout)
	run := pastRun(t, h, host.NewRunID(time.Now()))
	bundle, log := filepath.Join(d.dir, "run.bundle"), filepath.Join(d.home, "log")
	d.must(0, "bundle", run, "-o", bundle)
	for _, check := range [][]string{{"fsck"}, {"verify", run}, {"verify", bundle, "--key", hostKey}, {"monitor", log, "--key", hostKey}} {
		d.must(0, check...)
	}
	if got := to.take(); len(got) > 0 {
		t.Errorf("nothing is wrong, and it is sent: %+v", got)
	}

	sent := func(detail string, check ...string) {
		t.Helper()
		os.Remove(heard)
		if s := d.custody(check...); s.code == 0 {
			t.Errorf("%v finds nothing", check)
		}
		got := to.take()
		if len(got) != 1 || got[0].Type != notify.Verify || got[0].Severity != "alert" || !strings.Contains(got[0].Detail, detail) {
			t.Errorf("%v: the webhook got %+v", check, got)
		}
		var m notify.Message
		if line, err := os.ReadFile(heard); err != nil || json.Unmarshal(line, &m) != nil || len(got) == 1 && m != got[0] {
			t.Errorf("%v: the hook got %q, %v", check, line, err)
		}
	}
	text, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	d.write(bundle, string(text))
	sent("verify run.bundle", "verify", bundle, "--key", hostKey)
	d.sqlite("UPDATE records SET host = 'evil.example' WHERE run = '" + run + "' AND seq = 2")
	sent("fsck: 1 problem", "fsck")
	sent("verify "+run, "verify", run)
	forged := filepath.Join(t.TempDir(), run)
	forge(t, h, forged, run)
	forceLog(t, h, log, forged)
	pastRun(t, h, host.NewRunID(time.Now()))
	sent("monitor of "+log, "monitor", log, "--key", hostKey)
}
