package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// docCommand is one command of a page.
type docCommand struct {
	line   int      // of the page, from 1
	text   string   // as the page prints it
	output []string // what the page reports that it prints; nil if it says nothing
}

var (
	// docProgram begins a line that is a command where no "$ " does.
	docProgram = regexp.MustCompile(`^(\(printf |n=\$\(|[A-Z_]+=\S+ |(sudo|custody|bin/custody|make|python3|curl|mkdir|go|git|vault|ssh-keygen|ssh-agent|openssl|sha256sum|` +
		`xxd|sed|tail|export|systemd-creds|shred|mmdebstrap|apt|apt-get|install|systemctl|jq|tar|docker) )`)
	// docFormat is the first line of a signed text, which looks like a command.
	docFormat = regexp.MustCompile(`^custody [a-z]+ v1$`)
	// docFile is the first line of a fenced block that is a file.
	docFile  = regexp.MustCompile(`^# ([a-z-]+\.(?:hcl|yaml)): `)
	docFence = regexp.MustCompile("^ *```([a-z]*)$")
)

// docCommands returns the commands of a page in order. A command stands in a fenced block of sh or console,
// or in a block that is indented by four spaces, where an empty line ends a block. It begins with "$ ", and what it prints
// follows, or it begins with the name of a program, and nothing is said about its output. A fenced block that begins with a
// comment like "# custody.hcl: ..." is a file, which is written.
func docCommands(page string) []docCommand {
	var all []docCommand
	fence := ""
	// block is the kind of the line's block: "" for none, "prompt", "bare" for commands without one, or "other".
	block := ""
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		if m := docFence.FindStringSubmatch(line); m != nil {
			if fence != "" {
				m = []string{"", ""}
			}
			fence, block = cmp.Or(m[1], m[0]), ""
			continue
		}
		if m := docFile.FindStringSubmatch(line); m != nil && fence != "" {
			content, _, _ := strings.Cut(strings.Join(lines[i:], "\n"), "\n```")
			all = append(all, docCommand{line: i + 1, text: "cat >" + m[1] + " <<'END'\n" + content + "\nEND"})
			block = "other"
		}
		text, indented := strings.CutPrefix(line, "    ")
		if fence == "sh" || fence == "console" {
			text = line
		} else if fence != "" || !indented || text == "" {
			block = ""
			continue
		}
		command, prompt := strings.CutPrefix(text, "$ ")
		if block == "" {
			switch {
			case prompt:
				block = "prompt"
			case fence != "" || docProgram.MatchString(text) && !docFormat.MatchString(text):
				block = "bare"
			default:
				block = "other"
			}
		}
		last := len(all) - 1
		switch {
		case block == "other":
		case prompt:
			all = append(all, docCommand{line: i + 1, text: command})
		case block == "prompt":
			all[last].output = append(all[last].output, text)
		case last >= 0 && strings.HasSuffix(all[last].text, `\`):
			all[last].text += "\n" + text
		default:
			all = append(all, docCommand{line: i + 1, text: text})
		}
	}
	return all
}

// docService is a command that runs until it is stopped.
var docService = regexp.MustCompile(`^custody (serve|witness serve|export --follow|ingest|monitor .* --interval)\b`)

// docScript is a shell script that runs a page's commands one after the other in one shell. The output of command N is in
// the file N.out, and its exit status in N.code. A service runs until the next one begins.
func docScript(p docPage, commands []docCommand) string {
	var s strings.Builder
	s.WriteString(docPrologue)
	fmt.Fprintf(&s, "{ :; %s\n} >\"$W/setup.log\" 2>&1\n", p.setup)
	before := slices.Clone(p.before)
	for i, c := range commands {
		if at := slices.IndexFunc(before, func(b docBefore) bool { return strings.HasPrefix(c.text, b.command) }); at >= 0 {
			fmt.Fprintf(&s, "{ %s\n} >>\"$W/setup.log\" 2>&1\n", before[at].script)
			before = slices.Delete(before, at, at+1)
		}
		text := c.text
		for _, r := range p.replace {
			text = strings.ReplaceAll(text, r[0], r[1])
		}
		text = strings.ReplaceAll(strings.ReplaceAll(text, "bin/custody", "custody"), "sudo ", "")
		out := fmt.Sprintf(`"$W/%d.out"`, i)
		switch {
		case p.skipped(c) != "":
			continue
		case strings.HasPrefix(text, "# host.yaml: "):
			fmt.Fprintf(&s, "printf 'version: 1\\n%%s\\n' %s >\"$CUSTODY_HOME/host.yaml\"\n", strconv.Quote(strings.TrimPrefix(text, "# host.yaml: ")))
		case docService.MatchString(text):
			fmt.Fprintf(&s, "service %s %s\n", out, shellQuote(text))
		default:
			fmt.Fprintf(&s, "(exit $last)\n{ %s\n} >%s 2>&1 </dev/null; last=$?; echo $last >\"$W/%d.code\"\n", text, out, i)
		}
	}
	return s.String()
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// docPrologue has the functions that scripts of pages use.
const docPrologue = `
ip link set lo up
last=0 pids=
end() { for p in $pids; do kill $p 2>/dev/null; wait $p; done; pids=; }
trap 'end; kill $live $SSH_AGENT_PID $server 2>/dev/null; wait' EXIT
# service FILE COMMAND starts a service at a terminal, after the one before has ended, and waits until it prints something.
service() {
	end
	script -qefc "exec ${2%%#*}" /dev/null >"$1" 2>&1 </dev/null & pids=$!
	for i in $(seq 30); do [ -s "$1" ] && break; sleep 0.1; done
	sleep 0.5
	kill -0 $pids || echo "ended by itself" >"${1%out}code"
}
# live ARG... starts a run that goes on until the next one or the end of the page, and waits until it lives.
live=
live() {
	[ -z "$live" ] || { kill $live; wait $live; }
	custody run --quiet "$@" & live=$!
	for i in $(seq 300); do custody timeline last --kind exec 2>/dev/null | grep -q sleep && return; sleep 0.2; done
}
# silent COMMAND starts a service without a terminal, in the place of the one before.
silent() { end; "$@" >/dev/null 2>&1 </dev/null & pids=$!; sleep 1; }
# witnessed starts a witness on this machine, and has host.yaml name it.
server=
witnessed() {
	custody witness key witness.example >witness.pub
	custody witness serve --log host.pub --listen 127.0.0.1:7381 & server=$!
	printf 'version: 1\nlog:\n  witnesses: [{key: "%s", url: "http://127.0.0.1:7381"}]\n' "$(cat witness.pub)" >"$CUSTODY_HOME/host.yaml"
	sleep 0.5
}
# vault_server starts a Vault.
vault_server() {
	mkfifo vault.in vault.out
	"$CUSTODY_TEST_VAULT" <vault.in >vault.out & server=$!
	exec 8>vault.in 9<vault.out
	read -r answer <&9
	export VAULT_ADDR=$(sed 's/.*"address":"\([^"]*\)".*/\1/' <<<"$answer") VAULT_TOKEN=$(sed 's/.*"token":"\([^"]*\)".*/\1/' <<<"$answer")
}
# fresh gives the page a home of its own, with a key in the clear.
fresh() {
	templates=$(readlink "$CUSTODY_HOME/templates")
	export CUSTODY_HOME=$(mktemp -d "$W/home.XXXX")
	ln -s "$templates" "$CUSTODY_HOME/templates"
	custody run --quiet -- true
}
`

// TestDocs runs every command of the README and of the pages below docs, in their order, and compares what it prints with
// what the page says, in outline: without the values that differ from run to run. Each page has a home and a network
// namespace of its own, with nothing but loopback in it.
func TestDocs(t *testing.T) {
	names, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(names, "../../README.md") {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			commands := docCommands(string(b))
			p, ok := docPages[name]
			if len(commands) == 0 && !ok {
				return
			}
			t.Parallel()
			runPage(t, p, commands)
		})
	}
}

func runPage(t *testing.T, p docPage, commands []docCommand) {
	d := newDoor(t)
	for _, s := range p.skip {
		if !slices.ContainsFunc(commands, func(c docCommand) bool { return strings.HasPrefix(c.text, s.command) }) {
			t.Errorf("no command begins with %q, which is to be left out (%s)", s.command, s.reason)
		}
	}
	tools := t.TempDir()
	if err := os.CopyFS(tools, os.DirFS("testdata/docs/bin")); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"vault", "stamp"} {
		if err := os.Chmod(filepath.Join(tools, tool), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := []string{"unshare", "--net", "bash"}
	script := docScript(p, commands)
	if left := p.unused(commands); left != "" {
		t.Errorf("no command begins with %q, before which a script is to run", left)
	}
	if p.world {
		command = []string{filepath.Join(d.bin, "custody"), "world", "--", "bash"}
		script = strings.Replace(script, "ip link set lo up\n", "", 1)
	}
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], file)...)
	cmd.Dir = d.dir
	cmd.Env = []string{"PATH=" + d.bin + ":" + tools + ":" + os.Getenv("PATH"), "HOME=" + d.dir, "CUSTODY_HOME=" + d.home, "LANG=C.UTF-8", "W=" + d.dir, "ROOT=" + root, vaultEnv + "=" + os.Getenv(vaultEnv)}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the page's script: %v", err)
	}
	failed := false
	for i, c := range commands {
		if reason := p.skipped(c); reason != "" || strings.HasPrefix(c.text, "# ") {
			continue
		}
		for j, line := range c.output {
			for _, v := range p.varies {
				line = strings.ReplaceAll(line, v, "...")
			}
			c.output[j] = line
		}
		if err := c.compare(d.dir, i); err != nil {
			failed = true
			t.Errorf("line %d: %s\n%v", c.line, c.text, err)
		}
	}
	if setup, _ := os.ReadFile(filepath.Join(d.dir, "setup.log")); failed {
		t.Logf("the script and the fixture said:\n%s\n%s", bytes.TrimSpace(said), bytes.TrimSpace(setup))
	}
}

// compare compares a command's output with the page. A command without output in the page must succeed.
func (c docCommand) compare(dir string, i int) error {
	got, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.out", i)))
	if err != nil {
		return fmt.Errorf("was not run: %w", err)
	}
	if c.output == nil {
		code, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.code", i)))
		switch {
		case os.IsNotExist(err) && len(got) == 0: // a service
			return fmt.Errorf("printed nothing")
		case err == nil && strings.TrimSpace(string(code)) != "0":
			return fmt.Errorf("exited with %s: %s", bytes.TrimSpace(code), got)
		}
		return nil
	}
	lines := strings.Split(docPlain(string(got)), "\n")
	for _, want := range c.output {
		if strings.TrimSpace(want) == "" {
			continue
		}
		pattern := docPattern(want)
		at := slices.IndexFunc(lines, pattern.MatchString)
		if at < 0 {
			return fmt.Errorf("no line like %q in what it printed (or not in this order):\n%s", want, got)
		}
		lines = lines[at+1:]
	}
	return nil
}

var (
	docVarying = []struct {
		pattern *regexp.Regexp
		with    string
	}{
		{regexp.MustCompile(`\x1b\[[0-9;]*m|\r`), ""},
		{regexp.MustCompile(`\br-[0-9][0-9a-z]+(\.\.\.)?`), "r-..."},
		{regexp.MustCompile(`\b[a-z0-9.-]+\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{40,}`), "key..."},
		{regexp.MustCompile(`sha256-[0-9a-f]+`), "sha256-..."},
		{regexp.MustCompile(`\b[0-9a-f]{40,}\b`), "hex"},
		{regexp.MustCompile(`\bcso_[A-Za-z0-9_-]+`), "cso_..."},
		{regexp.MustCompile(`[0-9]+(\.[0-9]+)?(µs|ms|s|KiB|MiB|GiB|B)\b`), "0"},
		{regexp.MustCompile(`[0-9]+`), "0"},
		{regexp.MustCompile(`[ \t]+`), " "},
	}
	docHost = regexp.MustCompile(`\bcustody-vm\b`)
)

// docPlain replaces what differs from run to run.
func docPlain(s string) string {
	for _, v := range docVarying {
		s = v.pattern.ReplaceAllString(s, v.with)
	}
	return s
}

// docPattern matches a line that contains the page's text, where "..." matches anything, as does the host's name.
func docPattern(line string) *regexp.Regexp {
	parts := strings.Split(docHost.ReplaceAllString(strings.TrimSpace(docPlain(line)), "..."), "...")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(strings.TrimSpace(part))
	}
	return regexp.MustCompile(strings.Join(parts, ".*"))
}
