package llmapi_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The agents in examples/agent work: they call the model, run its tool calls, send back the results, and add up the
// cost.
func TestAgents(t *testing.T) {
	for _, a := range []struct{ script, base, key, path string }{
		{"agent_anthropic.py", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", ""},
		{"agent_openai.py", "OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1"},
	} {
		t.Run(a.script, func(t *testing.T) {
			s, url := serve(t)
			script, err := filepath.Abs(filepath.Join("../../../examples/agent/work", a.script))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			agent := func(key string) (string, error) {
				cmd := exec.Command("python3", script, "Please:\nrun: echo one > file\nrun: echo two\nthen: cat file && exit 3\nsay: all done")
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), a.base+"="+url+a.path, a.key+"="+key, "PYTHONDONTWRITEBYTECODE=1")
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			out, err := agent(key)
			if err != nil {
				t.Fatal(err, out)
			}
			in, output := 0, 0
			for _, v := range s.Served() {
				in, output = in+v.Input, output+v.Output
			}
			want := fmt.Sprintf("$ echo one > file\n$ echo two\n$ cat file && exit 3\nall done\ntokens: %d in, %d out\n", in, output)
			if out != want || len(s.Served()) != 3 || s.Served()[2].Cached == 0 {
				t.Errorf("%s, want %s", out, want)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "file")); string(b) != "one\n" {
				t.Error(string(b), err)
			}
			if out, err := agent("placeholder"); err == nil || len(s.Served()) != 4 {
				t.Error("the agent continues without a key:", out)
			}
		})
	}
}
