package report

import (
	"fmt"
	"io"
	"testing"

	"github.com/custody-project/custody/audit"
)

// BenchmarkBuild makes a report of 100,000 records of one run, and writes both files.
func BenchmarkBuild(b *testing.B) {
	p := newTape("r-1")
	p.step = "s"
	for i := range 25_000 {
		proc := fmt.Sprint(i)
		p.add(guest, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: proc, PID: i, Exe: "/usr/bin/true", Argv: []audit.Text{"true", "x"}, Cwd: "/workspace"}})
		p.add(guest, audit.KindFile, audit.Event{File: &audit.File{Proc: proc, Op: audit.FileWrite, Path: "/workspace/out.txt", SHA256: "00"}})
		p.add(host, audit.KindDNS, audit.Event{DNS: &audit.DNS{Name: "evil.example", Verdict: audit.Deny, Rule: "default", Reason: "no rule names this destination"}})
		p.add(guest, audit.KindExit, audit.Event{Exit: &audit.Exit{Proc: proc}})
	}
	in := input("nist80053", p.done())
	for b.Loop() {
		r := build(b, in)
		if err := r.HTML(io.Discard); err != nil {
			b.Fatal(err)
		}
		if err := r.JSON(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
