package project

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/custody-project/custody/internal/yamlnode"
	"github.com/custody-project/custody/vmm"
)

// The bounds of limits.
const (
	kib, mib, gib, tib = 1 << 10, 1 << 20, 1 << 30, 1 << 40

	maxCPUs              = 256
	minMemory, maxMemory = 128 * mib, tib
	minDisk, maxDisk     = 16 * mib, 16 * tib
	minRate, maxRate     = 64 << 10, tib // bytes per second
	minPIDs, maxPIDs     = 8, 1 << 22    // the kernel's PID_MAX_LIMIT
	maxSize              = 1024 * tib
	maxTokens            = 1 << 40

	minSilence, maxSilence = 5 * time.Second, time.Hour
	minIdle                = 10 * time.Second
)

// decoder reads the sections of custody.yaml.
type decoder struct {
	*reader
	later []func(*File) error // checks that need the complete file
}

// top reads the file.
func (d *decoder) top(f *File, n ast.Node) error {
	version := false
	err := d.mapping(n, "the file", fields{
		"version": func(n ast.Node) error {
			version = true
			if v, ok := yamlnode.Integer(n); !ok || v != Version {
				return d.err(n, "version is "+shown(n), fmt.Sprintf("write version: %d, the only one that this version of custody supports", Version))
			}
			return nil
		},
		"project":  func(n ast.Node) error { return d.checked(n, "project", &f.Project, label) },
		"template": func(n ast.Node) error { return d.checked(n, "template", &f.Template, word) },
		"isolation": func(n ast.Node) error {
			return d.checked(n, "isolation", &f.Isolation, oneOf(vmm.Tiers()...))
		},
		"egress": func(n ast.Node) error {
			return ruleDecoder{reader: d.reader, credential: d.credential}.rules(&f.Egress, n)
		},
		"resolvers": func(n ast.Node) error {
			f.Resolvers = nil
			return d.texts(n, "resolvers", &f.Resolvers, resolver)
		},
		"secrets": func(n ast.Node) error { return secretDecoder{d.reader}.all(&f.Secrets, n) },
		"env":     func(n ast.Node) error { return d.env(n, &f.Env) },
		"anomaly": func(n ast.Node) error {
			return d.checked(n, "anomaly", (*string)(&f.Anomaly), oneOf(string(Revoke), string(Freeze), string(End)))
		},
		"record":    func(n ast.Node) error { return d.record(&f.Record, n) },
		"limits":    func(n ast.Node) error { return d.limits(&f.Limits, n) },
		"lifecycle": func(n ast.Node) error { return d.lifecycle(&f.Lifecycle, n) },
		"steps": func(n ast.Node) error {
			return d.items(n, "steps", func(n ast.Node) error { return d.step(f, n) })
		},
	})
	if err == nil && !version {
		return d.err(nil, "version is missing", `begin the file with "version: 1"`)
	}
	return err
}

func (d *decoder) record(r *Record, n ast.Node) error {
	return d.mapping(n, "record", fields{
		"mode": func(n ast.Node) error {
			return d.checked(n, "mode", (*string)(&r.Mode), oneOf(string(Strict), string(Degrade)))
		},
		"output": func(n ast.Node) error { return d.size(n, "output", 0, maxSize, &r.Output) },
		"files": func(n ast.Node) error {
			return d.mapping(n, "files", fields{
				"hash_over": func(n ast.Node) error { return d.size(n, "hash_over", 0, maxSize, &r.Files.HashOver) },
				"read_over": func(n ast.Node) error {
					if i, ok := yamlnode.Integer(n); ok && i == -1 {
						r.Files.ReadOver = -1
						return nil
					}
					return d.size(n, "read_over", 0, maxSize, &r.Files.ReadOver)
				},
			})
		},
	})
}

func (d *decoder) limits(l *Limits, n ast.Node) error {
	return d.mapping(n, "limits", fields{
		"cpus":         func(n ast.Node) error { return d.integer(n, "cpus", 1, maxCPUs, &l.CPUs) },
		"memory":       func(n ast.Node) error { return d.size(n, "memory", minMemory, maxMemory, &l.Memory) },
		"disk":         func(n ast.Node) error { return d.size(n, "disk", minDisk, maxDisk, &l.Disk) },
		"disk_rate":    func(n ast.Node) error { return d.size(n, "disk_rate", minRate, maxRate, &l.DiskRate) },
		"network_rate": func(n ast.Node) error { return d.size(n, "network_rate", minRate, maxRate, &l.NetworkRate) },
		"pids":         func(n ast.Node) error { return d.integer(n, "pids", minPIDs, maxPIDs, &l.PIDs) },
		"time":         func(n ast.Node) error { return d.duration(n, "time", &l.Time) },
		"silence":      func(n ast.Node) error { return d.silence(n, &l.Silence) },
		"idle":         func(n ast.Node) error { return d.idle(n, &l.Idle) },
		"llm_tokens": func(n ast.Node) error {
			var tokens int
			err := d.integer(n, "llm_tokens", 1, maxTokens, &tokens)
			l.LLMTokens = int64(tokens)
			return err
		},
	})
}

func (d *decoder) silence(n ast.Node, to *time.Duration) error {
	if err := d.duration(n, "silence", to); err != nil {
		return err
	}
	if *to < minSilence || *to > maxSilence {
		return d.err(n, "silence is "+shown(n), fmt.Sprintf("give %s to %s", minSilence, maxSilence))
	}
	return nil
}

func (d *decoder) idle(n ast.Node, to *time.Duration) error {
	if err := d.duration(n, "idle", to); err != nil {
		return err
	}
	if *to < minIdle {
		return d.err(n, "idle is "+shown(n), fmt.Sprintf("give %s or more", minIdle))
	}
	return nil
}

func (d *decoder) step(f *File, n ast.Node) error {
	var s Step
	err := d.mapping(n, "a step", fields{
		"name":    func(n ast.Node) error { return d.checked(n, "name", &s.Name, label) },
		"run":     func(n ast.Node) error { return d.checked(n, "run", &s.Run, something) },
		"env":     func(n ast.Node) error { return d.env(n, &s.Env) },
		"time":    func(n ast.Node) error { return d.stepTime(n, &s.Time) },
		"workdir": func(n ast.Node) error { return d.checked(n, "workdir", &s.Workdir, within) },
		"secrets": func(n ast.Node) error {
			return d.items(n, "secrets", func(n ast.Node) error {
				var name string
				err := d.secretName(n, "a step", &name)
				s.Secrets = append(s.Secrets, name)
				return err
			})
		},
	})
	switch {
	case err != nil:
		return err
	case s.Name == "" || s.Run == "":
		return d.err(n, "a step needs a name and a command", `write {name: build, run: "make"}`)
	case slices.ContainsFunc(f.Steps, func(o Step) bool { return o.Name == s.Name }):
		return d.err(n, fmt.Sprintf("two steps are named %q", s.Name), "give each step its own name")
	}
	f.Steps = append(f.Steps, s)
	d.later = append(d.later, func(f *File) error {
		if clash := f.Clash(f.Binds(s)); clash != "" {
			return d.err(n, fmt.Sprintf("the step %q: %s", s.Name, clash), "")
		}
		return nil
	})
	return nil
}

// stepTime reads the time limit of a step, which is part of the run's.
func (d *decoder) stepTime(n ast.Node, to *time.Duration) error {
	if err := d.duration(n, "time", to); err != nil {
		return err
	}
	limit := *to
	if limit < time.Second {
		return d.err(n, "time is "+shown(n), "give a step 1s at least")
	}
	d.later = append(d.later, func(f *File) error {
		if limit <= f.Limits.Time {
			return nil
		}
		return d.err(n, fmt.Sprintf("time is %s, more than the run has", shown(n)), fmt.Sprintf("give %s at most, or raise limits.time", f.Limits.Time))
	})
	return nil
}

// Checks of strings return the remedy for an invalid one, and "" for a valid one.

// The expressions are compiled when they are first used: each start of the program would wait for them.
var (
	labels    = expression(`^[a-z0-9-]{1,63}$`)
	words     = expression(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	headers   = expression("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$") // a token of RFC 9110, section 5.6.2
	variables = expression(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

func expression(source string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(source) })
}

func matches(re func() *regexp.Regexp, s, hint string) string {
	if re().MatchString(s) {
		return ""
	}
	return hint
}

func label(s string) string { return matches(labels, s, "use 1 to 63 of a-z, 0-9 and -") }
func word(s string) string {
	return matches(words, s, "use 1 to 64 letters, digits, '.', '_' and '-', first a letter or digit")
}
func something(s string) string {
	if strings.TrimSpace(s) != "" {
		return ""
	}
	return "give a command"
}

func within(s string) string {
	if s == "" || slices.Contains(strings.Split(s, "/"), "..") {
		return `give a path without ".."`
	}
	return ""
}

func relative(s string) string {
	if strings.HasPrefix(s, "/") || within(s) != "" || s == "." {
		return `give a file's name, without a leading "/" or ".."`
	}
	return ""
}

func oneOf(list ...string) func(string) string {
	return func(s string) string {
		if slices.Contains(list, s) {
			return ""
		}
		return "give " + strings.Join(list, " or ")
	}
}

// ValidName reports whether a project can have the name.
func ValidName(s string) bool { return label(s) == "" }
