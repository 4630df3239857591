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

	"github.com/custody-project/custody/notify"
)

// TestNotified: a run whose step prints a secret's value sends its finding and the freeze to a webhook, signed and without the
// value, and its end to a hook.
func TestNotified(t *testing.T) {
	t.Parallel()
	key := []byte("a-key-of-24-bytes-at-least!")
	var mu sync.Mutex // guards got
	got := map[string]notify.Message{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
			t.Errorf("signature %q, want %q", r.Header.Get("webhook-signature"), want)
		}
		if strings.Contains(string(body), canary) {
			t.Errorf("the value leaves: %s", body)
		}
		var m notify.Message
		if err := json.Unmarshal(body, &m); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got[m.Type] = m
	}))
	defer receiver.Close()

	d := newDoor(t)
	d.env = []string{"CANARY=" + canary, "NOTIFY_KEY=whsec_" + base64.StdEncoding.EncodeToString(key)}
	ended := filepath.Join(d.dir, "ended")
	d.write(filepath.Join(d.home, "host.yaml"), fmt.Sprintf(`version: 1
notify:
  webhooks: [{name: ops, url: %q, key: "env:NOTIFY_KEY"}]
  hooks: [{name: after, argv: [/bin/sh, -c, 'cat > "$0"', %s]}]
`, receiver.URL, ended))
	d.project(lease + "anomaly: freeze\nlimits: {time: 6s}\n")
	d.must(124, "run", "--secret", "canary", "--", "sh", "-c", `echo "$CANARY"; sleep 100`)
	run := d.runs()[0].ID
	mu.Lock()
	defer mu.Unlock()
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
