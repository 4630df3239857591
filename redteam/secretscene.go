package redteam

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redteam/simnet"
)

// secret is a secret of the attacked project. Its value is made for the run, and custody reads it from its environment
// or from a file.
type secret struct {
	name    string
	deliver string   // in the syntax of custody.yaml
	file    bool     // its source is a file, not a variable
	hosts   []string // that it is for, in the syntax of custody.yaml
	homes   []string // TLS names of the servers that may receive it
}

// secretProbes adds probes to the scene of steps that have credentials.
type secretProbes struct{ *catalogue }

// env returns a new secret that its step receives as a variable, named like the secret in upper case.
func (c secretProbes) env() secret {
	name := fmt.Sprintf("s%03d", c.next())
	return secret{name: name, deliver: "{env: " + strings.ToUpper(name) + "}", hosts: []string{simnet.API}, homes: []string{simnet.API}}
}

// Secrets that the gateway adds to requests. Responses of the host of shownKey are not masked.
var (
	apiKey   = secret{name: "apikey", file: true, deliver: "{header: " + simnet.KeyHeader + ", env: API_KEY}", homes: []string{simnet.API}}
	shownKey = secret{name: "shown", deliver: "{header: " + simnet.KeyHeader + "}", homes: []string{simnet.Fronted}}
)

// opening is the prefix of a probe's values, by which the guest's script can find one.
func opening(token string) string { return "sk-" + token }

// newValue returns a value with characters that encodings escape.
func newValue(token string) string { return opening(token) + `+&"~` + rand.Text() }

// secretPolicy returns the project file of the scene. Each step binds the secrets of its probes.
func secretPolicy(probes []Probe) string {
	var b strings.Builder
	b.WriteString(head + "secrets:\n")
	for _, s := range allSecrets(probes) {
		from := "env:" + source(s)
		if s.file {
			from = "file:" + s.name + ".key"
		}
		hosts := ""
		if len(s.hosts) > 0 {
			hosts = ", hosts: [" + strings.Join(s.hosts, ", ") + "]"
		}
		fmt.Fprintf(&b, "  %s: {from: %q, deliver: %s%s}\n", s.name, from, s.deliver, hosts)
	}
	b.WriteString("steps:\n")
	for _, step := range steps(probes) {
		var names []string
		for _, s := range allSecrets(ofStep(probes, step)) {
			names = append(names, s.name)
		}
		fmt.Fprintf(&b, "  - {name: %s, run: \"python3 /workspace/guest.py %s.json\", secrets: [%s]}\n", step, step, strings.Join(names, ", "))
	}
	return b.String() + `egress:
  - {allow: ` + simnet.API + `, ports: [tcp/443, tcp/80], http: {methods: [GET, HEAD, POST], paths: ["/v1/*"]}, credential: apikey}
  - {allow: ` + simnet.Fronted + `, http: {methods: [GET], paths: ["/v1/*"], redact: false}, credential: shown}
  - {allow: "*.` + simnet.Wild + `", http: {methods: [GET, POST], paths: ["/*"]}}
  - {allow: ` + simnet.Allowed + `}
  - {allow: ` + simnet.Plain + `, ports: [tcp/80]}
  - {allow: "*.` + simnet.Rebind + `"}
  - {allow: "*.` + simnet.RebindDirect + `", ports: [tcp/7000], mode: direct}
`
}

func source(s secret) string { return "REDTEAM_" + strings.ToUpper(s.name) }

// steps returns the names of the probes' steps, in order.
func steps(probes []Probe) (names []string) {
	for _, p := range probes {
		if !slices.Contains(names, p.step) {
			names = append(names, p.step)
		}
	}
	return names
}

func ofStep(probes []Probe, step string) []Probe {
	return slices.DeleteFunc(slices.Clone(probes), func(p Probe) bool { return p.step != step })
}

// allSecrets returns the secrets that the probes' steps bind.
func allSecrets(probes []Probe) (list []secret) {
	seen := map[string]bool{}
	for _, p := range probes {
		for _, s := range p.binds {
			if !seen[s.name] {
				seen[s.name] = true
				list = append(list, s)
			}
		}
	}
	return list
}

// secrets runs the scene of steps with credentials.
func (t *trial) secrets(ctx context.Context, probes []Probe) error {
	dir := string(withSecrets)
	env, err := t.mint(probes)
	if err != nil {
		return err
	}
	for _, step := range steps(probes) {
		var tasks []*task
		for _, p := range ofStep(probes, step) {
			tasks = append(tasks, t.placed(p.task))
		}
		list, err := json.Marshal(tasks)
		if err == nil {
			_, err = t.custody.write(dir+"/"+step+".json", list)
		}
		if err != nil {
			return err
		}
	}
	if err := t.trap(dir); err != nil {
		return err
	}
	policy := secretPolicy(probes)
	for _, rule := range t.custody.extra {
		policy += "  - " + rule + "\n"
	}
	file, err := t.custody.write(dir+".yaml", []byte(policy))
	if err != nil {
		return err
	}
	s, err := t.custody.launch(ctx, dir, file, env, "--out", filepath.Join(t.custody.dir, outDir))
	if err != nil {
		return err
	}
	if err := s.wait(); err != nil {
		return err
	}
	time.Sleep(settle)
	records, err := t.custody.records(ctx, s.id())
	if err != nil {
		return err
	}
	if t.kept, err = t.keepings(s, records); err != nil {
		return err
	}
	for _, p := range probes {
		t.judge(p, s.report(p.ID), s.id(), records, time.Time{})
	}
	return nil
}

// mint makes the values and their files, and returns the variables of those whose source is the environment.
func (t *trial) mint(probes []Probe) (env []string, err error) {
	t.values = map[string]string{}
	for _, p := range probes {
		for _, s := range p.binds {
			if t.values[s.name] != "" {
				continue
			}
			t.values[s.name] = newValue(p.token)
			if s.file {
				path := filepath.Join(t.custody.dir, s.name+".key")
				err = errors.Join(err, os.WriteFile(path, []byte(t.values[s.name]), 0o600))
				continue
			}
			env = append(env, source(s)+"="+t.values[s.name])
		}
	}
	return env, err
}

// Names in the suite's directory: the target of --out, and a file of the host outside the workspace.
const (
	outDir   = "secrets-out"
	hostFile = "host.secret"
)

// placed returns the task with the suite's directory in place of {DIR}.
func (t *trial) placed(k *task) *task {
	c := *k
	c.Argv = slices.Clone(k.Argv)
	for i := range c.Argv {
		c.Argv[i] = strings.ReplaceAll(c.Argv[i], "{DIR}", t.custody.dir)
	}
	return &c
}

// trap adds links to the workspace that point to a file and a directory outside it.
func (t *trial) trap(dir string) error {
	path, err := t.custody.write(hostFile, []byte(t.hostSecret()))
	if err != nil {
		return err
	}
	return errors.Join(os.Mkdir(filepath.Join(t.custody.dir, outDir), 0o700), os.Symlink(path, filepath.Join(t.custody.dir, dir, "host-link")), os.Symlink(t.custody.dir, filepath.Join(t.custody.dir, dir, "host-dir")))
}

// hostSecret is the content of the host's file outside the workspace.
func (t *trial) hostSecret() string { return "a secret of the host's, in " + t.custody.dir }

// kept is all data of a run that could contain a value: its files, record and output.
type kept struct {
	places []copied
	out    map[string][]byte // regular files that --out copied, by path
}

type copied struct {
	name string
	text []byte
}

// keepings reads the run's files on disk, its record without the escapes of JSON, and its output.
func (t *trial) keepings(s *session, records []audit.Record) (k kept, err error) {
	dir := ""
	for _, v := range t.custody.env {
		if home, ok := strings.CutPrefix(v, "CUSTODY_HOME="); ok {
			dir = filepath.Join(home, "runs", s.id())
		}
	}
	files, err := readTree(dir)
	if err != nil || len(files) == 0 {
		return k, errors.Join(fmt.Errorf("the run %s has no files in %q", s.id(), dir), err)
	}
	for name, text := range files {
		k.places = append(k.places, copied{"the run's file " + name, text})
	}
	var said, plain bytes.Buffer
	for i := range records {
		if o := records[i].Output; o != nil {
			said.WriteString(string(o.Text))
		}
		texts(&plain, &records[i])
	}
	k.places = append(k.places, copied{"the record's output", said.Bytes()}, copied{"the record", plain.Bytes()},
		copied{"the run's output", s.stdout.Bytes()}, copied{"custody's error output", s.stderr.Bytes()})
	k.out, err = readTree(filepath.Join(t.custody.dir, outDir))
	return k, err
}

// texts writes the texts of a record that the guest can determine.
func texts(b *bytes.Buffer, r *audit.Record) {
	list := []string{}
	switch {
	case r.Exec != nil:
		for _, a := range r.Exec.Argv {
			list = append(list, string(a))
		}
	case r.File != nil:
		list = append(list, string(r.File.Path), string(r.File.To))
	case r.DNS != nil:
		list = append(list, string(r.DNS.Name))
	case r.HTTP != nil:
		list = append(list, string(r.HTTP.Path), string(r.HTTP.Host))
	case r.Flow != nil:
		list = append(list, string(r.Flow.Name), string(r.Flow.SNI), r.Flow.Reason)
	}
	b.WriteString(strings.Join(list, "\n") + "\n")
}

// readTree reads the regular files below a directory. It follows no links.
func readTree(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = b
		return err
	})
	return files, err
}

// has reports whether a text is in the place with this name.
func (k kept) has(name string, text []byte) bool {
	return slices.ContainsFunc(k.places, func(p copied) bool { return p.name == name && bytes.Contains(p.text, text) })
}

// holds returns the name of a place that contains a text, "" for none.
func (k kept) holds(text []byte) string {
	for _, p := range k.places {
		if bytes.Contains(p.text, text) {
			return p.name
		}
	}
	return ""
}
