package project

import (
	"fmt"
	"slices"
)

// Reach lists what the file requests beyond an empty sandbox, one per line: values from the host, egress, and a
// record or an isolation weaker than the default. A file without requests can only harm its own run.
func (f *File) Reach() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for name, s := range f.Secrets {
		kind, rest := s.Source()
		switch kind {
		case "cmd":
			add("secret %s: runs %q on this host", name, rest)
		case "file":
			add("secret %s: reads the file %s", name, rest)
		case "env":
			add("secret %s: reads the environment variable %s", name, rest)
		default:
			add("secret %s: takes %s from Vault", name, rest)
		}
	}
	slices.Sort(list)
	for i := range f.Egress {
		add("egress: %s", f.Egress[i].String())
	}
	for _, r := range f.Resolvers {
		add("resolvers: asks %s", r)
	}
	usual := Default()
	if f.Record.Mode != usual.Record.Mode {
		add("record.mode: %s: continues when the record cannot be written", f.Record.Mode)
	}
	if f.Record.Files.HashOver > usual.Record.Files.HashOver {
		add("record.files: does not hash files of up to %d bytes that are written", f.Record.Files.HashOver)
	}
	if over := f.Record.Files.ReadOver; over < 0 || over > usual.Record.Files.ReadOver {
		add("record.files: reports fewer reads than by default")
	}
	if f.Record.Output < usual.Record.Output {
		add("record.output: records %d bytes of output", f.Record.Output)
	}
	if f.Isolation != "" {
		add("isolation: %s", f.Isolation)
	}
	return list
}
