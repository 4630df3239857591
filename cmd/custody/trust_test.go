package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestTrust: what a project's file asks for outside the sandbox it gets when someone on this host has accepted it as it is.
func TestTrust(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.asks = true
	for _, dir := range []string{filepath.Dir(d.dir), d.dir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.env = append(d.env, "SUDO_UID=65534")
	mark := filepath.Join(t.TempDir(), "executed")
	if err := os.Chmod(filepath.Dir(mark), 0o777); err != nil {
		t.Fatal(err)
	}
	hostile := "version: 1\nsecrets:\n  key: {from: \"cmd:touch " + mark + "; echo 12345678\", deliver: {env: KEY}}\n"
	script := filepath.Join(d.dir, "key.sh")
	refused := func(says ...string) {
		t.Helper()
		for _, args := range [][]string{{"run", "--", "true"}, {"secrets", "check"}} {
			s := d.custody(args...)
			d.clearError(s, "custody.yaml is not trusted: ")
			d.contains(s.stderr, append(says, "custody trust ")...)
		}
		if _, err := os.Stat(mark); err == nil {
			t.Fatal("a command of a file that nobody has accepted was executed")
		}
		if len(d.runs()) != 1 {
			t.Error("a refused run is listed")
		}
	}

	d.project("version: 1\nlimits: {memory: 512MiB}\n")
	d.must(0, "run", "-q", "--", "true") // asks for nothing
	d.project(hostile)
	refused("it has not been accepted", `runs "touch `)
	d.project("version: 1\nsecrets:\n  key: {from: \"cmd:sh key.sh\", deliver: {env: KEY}}\n")
	d.write(script, "echo the-owners-value\n")
	refused("it has not been accepted")
	d.contains(d.must(0, "trust").stdout, "are trusted", `runs "sh key.sh" on this host`)
	d.contains(d.must(0, "run", "-q", "--secret", "key", "--", "sh", "-c", "echo ${#KEY}").stdout, "16")

	// Neither the file nor the files it names can be replaced.
	own, err := os.ReadFile(filepath.Join(d.dir, "custody.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d.project(hostile)
	s := d.custody("run", "--", "true")
	d.clearError(s, "has changed since it was accepted")
	d.project(string(own))
	d.write(script, "touch "+mark+"; echo 12345678\n")
	s = d.custody("run", "--", "true")
	d.clearError(s, "key.sh has changed since it was accepted")
	d.write(script, "echo the-owners-value\n")
	d.must(0, "run", "-q", "--", "true")
	d.must(0, "trust", "--forget")
	d.clearError(d.custody("run", "--", "true"), "it has not been accepted")
	d.must(0, "run", "-q", "--trust", "--", "true")
	d.must(0, "run", "-q", "--", "true")
	if _, err := os.Stat(mark); err == nil {
		t.Error("a command of a changed file was executed")
	}
	// The same file at another path is another file.
	sub := filepath.Join(d.dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	d.write(filepath.Join(sub, "custody.yaml"), string(own))
	d.clearError(d.custody("run", "--policy", "sub/custody.yaml", "--", "true"), "it has not been accepted")

	// A file of someone else, or one that everyone can write, is not used at all.
	path := filepath.Join(d.dir, "custody.yaml")
	if err := os.Chown(path, 1, 1); err != nil {
		t.Fatal(err)
	}
	d.clearError(d.custody("run", "--trust", "--", "true"), "belongs to user 1")
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	d.must(0, "run", "-q", "--", "true")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	d.clearError(d.custody("run", "--trust", "--", "true"), "can be written by others")
}

// TestTrustAsked: a person at a terminal is shown what the file asks for, and asked.
func TestTrustAsked(t *testing.T) {
	t.Parallel()
	for answer, code := range map[string]int{"y": 0, "n": exitFailed, "": exitFailed} {
		d := newDoor(t)
		d.asks = true
		d.project("version: 1\negress: [{allow: a.example}]\n")
		cmd := d.command("run", "-q", "--", "true")
		terminal, err := pty.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		defer terminal.Close()
		var said strings.Builder
		for buf := make([]byte, 1024); !strings.Contains(said.String(), "[y/N]"); {
			n, err := terminal.Read(buf)
			if said.Write(buf[:n]); err != nil {
				t.Fatalf("no question, but %q: %v", said.String(), err)
			}
		}
		d.contains(said.String(), "egress: a.example tcp/443")
		terminal.WriteString(answer + "\n")
		for buf := make([]byte, 1024); err == nil; {
			_, err = terminal.Read(buf)
		}
		cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("after the answer %q it exits %d, want %d", answer, got, code)
		}
	}
}
