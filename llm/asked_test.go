package llm

import (
	"fmt"
	"strings"
	"testing"
)

func TestAsked(t *testing.T) {
	b := NewTracker(0, nil)
	if call, _ := b.Asked([]string{"ls"}); call != "" {
		t.Error("found a command before any tool call")
	}
	b.asked.add("m1", "t1", []byte(`{"command":" ls -la /src\n","cwd":"/src/dir"}`))
	b.asked.add("m1", "t2", []byte(`{"command":["bash","-lc","make -j2 test"]}`))
	b.asked.add("m2", "t3", []byte(`{"steps":[{"run":"go vet ./..."},{"run":"cd sub && git commit -m 'a b'"}],"n":12,"x":"no"}`))
	b.asked.add("m3", "t4", []byte(`echo not json`))
	for _, c := range []struct {
		argv string // elements separated by |
		tool string
	}{
		{"sh|-c|ls -la /src", "t1"},
		{"sh|-c| ls -la /src ", "t1"},
		{"ls|-la|/src", "t1"},
		{"/usr/bin/env|ls|-la|/src", "t1"},
		{"bash|-lc|make -j2 test", "t2"},
		{"timeout|60|bash|-lc|make -j2 test", "t2"},
		{"make|-j2|test", "t2"},
		{"go|vet|./...", "t3"},
		{"bash|-lc|cd sub && git commit -m 'a b'", "t3"},
		{"/bin/bash|-c|-l|source /x.sh && eval 'cd sub && git commit -m 'a b'' < /dev/null && pwd", "t3"},
		{"sh|-c|echo not json", "t4"},
		{"cat|/src/dir", "t1"},
		{"bash|-c|cd /src/dir && rm -rf x", ""}, // a path is not a command
		{"bash|script|xx; ls -la /src", ""},     // no -c
		{"x|no", ""},                            // too short
		{"ls", ""},
		{"", ""},
		{"sh|-c", ""},
	} {
		if _, tool := b.Asked(strings.Split(c.argv, "|")); tool != c.tool {
			t.Errorf("%s: %q, want %q", c.argv, tool, c.tool)
		}
	}
	b.asked.add("m4", "t5", []byte(`{"command":"ls -la /src"}`))
	if call, tool := b.Asked([]string{"sh", "-c", "ls -la /src"}); call != "m4" || tool != "t5" {
		t.Error(call, tool, "is not the latest")
	}
	b.Asked(nil)
}

// The number of stored tool calls is bounded, and the latest ones are found.
func TestAskedIsBounded(t *testing.T) {
	b := NewTracker(0, nil)
	for i := range 1000 {
		b.asked.add("m", fmt.Sprint(i), fmt.Appendf(nil, `{"always":"the same","command":"run %d","more":[%s"z"]}`, i, strings.Repeat(fmt.Sprintf(`"arg %d",`, i), 300)))
	}
	if n := len(b.asked.turn); n != maxAsked || len(b.asked.where) > maxAsked*maxLeaves {
		t.Error(n, len(b.asked.where))
	}
	if _, tool := b.Asked([]string{"run", "999"}); tool != "999" {
		t.Error(tool)
	}
	if _, tool := b.Asked([]string{"run", "1"}); tool != "" {
		t.Error(tool)
	}
	if _, tool := b.Asked([]string{"the", "same"}); tool != "999" {
		t.Error(tool)
	}
}

// A command is found as soon as its tool call is complete, before the stream has ended.
func TestAskedWithinAStream(t *testing.T) {
	for name, argv := range map[string][]string{
		"anthropic-stream":        {"sh", "-c", "echo \"hé\" > é.txt"},
		"openai-stream":           {"uname", "-a"},
		"openai-responses-stream": {"date", "-u"},
		"gemini-array":            {"ps", "aux"},
		"gemini-json":             {"df", "-h"},
		"openai-json":             {"bash", "-lc", "make test"},
	} {
		f := named(t, name)
		b := NewTracker(0, nil)
		c := b.Begin(Request{Method: f.method, Path: f.path})
		c.Response(f.status, f.header)
		if c.Body(f.body); true {
			if call, tool := b.Asked(argv); call != c.ID() || tool == "" {
				t.Errorf("%s: %q %q", name, call, tool)
			}
		}
		c.Finish(nil)
	}
}
