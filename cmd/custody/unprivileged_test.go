package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestUnprivileged: on a host with a service an ordinary user gets from each command the result, or an error that names the remedy.
func TestUnprivileged(t *testing.T) {
	s, runs := newServedRecords(t)
	run := runs[0]
	s.user.write(filepath.Join(s.user.dir, "project.yaml"), "version: 1\nproject: p\nsteps: [{name: s, run: 'true'}]\n")
	const (
		works    = "" // it exits with 0
		notHere  = "needs the state of this host, and the service does not carry it out for its users\nhint: have an administrator call it as root"
		notLive  = "hint: `custody runs --status running` lists the live runs"
		needRoot = "hint: run it with sudo"
		needHost = "hint: give --host https://HOST:PORT, or set CUSTODY_URL"
	)
	calls := map[string]struct{ args, want string }{
		"run":             {"run --project none -- true", "`custody project ls`"},
		"runs":            {"runs", works},
		"timeline":        {"timeline " + run, works},
		"note":            {"note " + run + " text", notHere},
		"notes":           {"notes " + run, notHere},
		"search":          {"search --text x", notHere},
		"serve":           {"serve", notHere},
		"token new":       {"token new --role viewer siem", notHere},
		"token ls":        {"token ls", notHere},
		"token rm":        {"token rm siem", notHere},
		"verify":          {"verify " + run, works},
		"bundle":          {"bundle " + run + " -o out.tar", works},
		"export":          {"export --format ocsf", notHere},
		"report":          {"report --framework soc2 -o report.tar", notHere},
		"fsck":            {"fsck", notHere},
		"rebuild":         {"rebuild", notHere},
		"ship":            {"ship", notHere},
		"prune":           {"prune", notHere},
		"hold":            {"hold " + run, notHere},
		"erase":           {"erase " + run + " 1 --reason r", notHere},
		"ingest":          {"ingest", notHere},
		"monitor":         {"monitor missing", notHere},
		"witness key":     {"witness key name", notHere},
		"witness serve":   {"witness serve --log project.yaml", notHere},
		"key show":        {"key show", notHere},
		"key rotate":      {"key rotate", notHere},
		"key archive":     {"key archive", notHere},
		"key identity":    {"key identity identity.age", works},
		"key fleet new":   {"key fleet new fleet", notHere},
		"key fleet show":  {"key fleet show", notHere},
		"key fleet enrol": {"key fleet enrol KEY", notHere},
		"key fleet add":   {"key fleet add project.yaml", notHere},
		"key fleet list":  {"key fleet list", notHere},
		"notify test":     {"notify test", notHere},
		"notify ls":       {"notify ls", notHere},
		"notify send":     {"notify send", notHere},
		"template build":  {"template build base", needRoot},
		"template ls":     {"template ls", notHere},
		"template show":   {"template show base", notHere},
		"template rm":     {"template rm base", notHere},
		"project apply":   {"project apply project.yaml", notHere},
		"project ls":      {"project ls", notHere},
		"project show":    {"project show p", notHere},
		"project history": {"project history p", notHere},
		"project rm":      {"project rm p", notHere},
		"trust":           {"trust project.yaml", notHere},
		"policy check":    {"policy check project.yaml", works},
		"policy explain":  {"policy explain project.yaml example.com", "denied"},
		"policy learn":    {"policy learn " + run, works},
		"policy set":      {"policy set " + run + " project.yaml", notLive},
		"secrets check":   {"secrets check --policy project.yaml", notHere},
		"pause":           {"pause " + run, notLive},
		"resume":          {"resume " + run, notLive},
		"snapshot":        {"snapshot " + run + " -o memory", notHere},
		"redteam":         {"redteam", needRoot},
		"world":           {"world -- true", needRoot},
		"host":            {"host", needRoot},
		"doctor":          {"doctor", notHere},
		"ps":              {"ps", needHost},
		"exec":            {"exec sandbox true", needHost},
		"logs":            {"logs sandbox", needHost},
		"kill":            {"kill sandbox", needHost},
		"cp":              {"cp file sandbox:", needHost},
		"port":            {"port sandbox 8080", needHost},
		"destroy":         {"destroy sandbox", needHost},
		"sandbox pause":   {"sandbox pause sandbox", needHost},
		"sandbox resume":  {"sandbox resume sandbox", needHost},
		"sandbox fork":    {"sandbox fork sandbox", needHost},
		"version":         {"version", works},
		"help":            {"help", works},
		"completion":      {"completion bash", works},
		"man":             {"man", works},
	}
	paths := map[string]bool{}
	for _, leaf := range newParser(new(cli), io.Discard, io.Discard, func() {}).Model.Leaves(true) {
		path := strings.TrimPrefix(leaf.FullPath(), "custody ")
		paths[path] = true
		c, ok := calls[path]
		if !ok {
			t.Errorf("custody %s: the table has no call", path)
			continue
		}
		t.Run(path, func(t *testing.T) {
			d := *s.user
			d.T, d.asks = t, true
			cmd := d.command(strings.Fields(c.args)...)
			cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "CUSTODY_HOME=") })
			got := d.finish(cmd)
			all := strings.ReplaceAll(got.stdout+got.stderr, "custody "+path+": hint", "hint")
			all = strings.ReplaceAll(all, "custody: hint", "hint")
			if strings.Contains(all, "permission denied") || (got.code == 0) != (c.want == works) || !strings.Contains(all, c.want) {
				t.Errorf("it exits %d: %s; want %q", got.code, all, c.want)
			}
		})
	}
	for path := range calls {
		if !paths[path] {
			t.Errorf("there is no command %s", path)
		}
	}
	if own, err := os.ReadDir(filepath.Join(s.user.dir, ".local")); err == nil {
		t.Errorf("a state of the user was made: %v", own)
	}
}
