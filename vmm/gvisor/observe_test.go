package gvisor

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm/gvisor/trace"
)

// watched is an observer and what it emitted.
type watched struct {
	*testing.T
	*observer
	events []audit.Event
}

func watch(t *testing.T) *watched {
	w := &watched{T: t}
	w.observer = newObserver(func(_ context.Context, ev *audit.Event) error {
		w.events = append(w.events, *ev)
		return nil
	})
	if err := w.identify(t.Context(), "r-test"); err != nil {
		t.Fatal(err)
	}
	w.events = nil
	w.begin("main")
	w.send(trace.Message{Process: trace.Process{PID: 1, Start: 1}, Clone: &trace.Clone{PID: 2, Start: 2}})
	return w
}

func (w *watched) send(list ...trace.Message) {
	w.Helper()
	for _, m := range list {
		if m.Process.Start == 0 {
			m.Process.Start = int64(m.Process.PID)
		}
		if m.Thread == 0 {
			m.Thread = m.Process.PID
		}
		if err := w.handle(w.Context(), m); err != nil {
			w.Fatal(err)
		}
	}
}

// took returns the kinds of the events since the call before, and the sum of the counts of gaps.
func (w *watched) took() (kinds string, lost uint64) {
	w.Helper()
	if err := w.declareCalls(w.Context(), "main"); err != nil {
		w.Fatal(err)
	}
	var list []string
	for _, ev := range w.events {
		list = append(list, string(ev.Kind))
		if ev.Kind == audit.KindGap {
			lost += ev.Gap.Count
		}
	}
	w.events = nil
	return strings.Join(list, " "), lost
}

func by(pid int) trace.Message { return trace.Message{Process: trace.Process{PID: pid, PPID: 2}} }

func attempt(pid int, path string) trace.Message {
	m := by(pid)
	m.Attempt = &trace.Attempt{Path: path}
	return m
}

func returned(pid, errno int) trace.Message {
	m := by(pid)
	m.Raw = &trace.Raw{Number: unix.SYS_EXECVE, Errno: errno}
	return m
}

func execd(pid int, path string, argv ...string) trace.Message {
	m := by(pid)
	m.Exec = &trace.Exec{Path: path, Argv: argv}
	return m
}

func clone(pid, child int) trace.Message {
	m := by(pid)
	m.Clone = &trace.Clone{PID: child, Start: int64(child)}
	return m
}

func end(pid int) trace.Message {
	m := by(pid)
	m.End = &trace.End{}
	return m
}

func TestObserveHiddenExecs(t *testing.T) {
	for name, tc := range map[string]struct {
		list  []trace.Message
		kinds string
	}{
		"an exec":                       {[]trace.Message{attempt(3, "/a"), returned(3, 0), execd(3, "/a", "a"), end(3)}, "exec exit"},
		"wrong arguments":               {[]trace.Message{attempt(3, "/a"), returned(3, int(unix.EFAULT))}, ""},
		"not UTF-8":                     {[]trace.Message{returned(3, 0), end(3)}, "gap"},
		"not UTF-8, then an exec":       {[]trace.Message{returned(3, 0), attempt(3, "/a"), returned(3, 0), execd(3, "/a")}, "exec gap"},
		"an environment that is not":    {[]trace.Message{attempt(3, "/a"), returned(3, 0), end(3)}, "gap"},
		"under way when the step ends":  {[]trace.Message{attempt(3, "/a"), returned(3, 0)}, "gap"},
		"one of the two of a process":   {[]trace.Message{attempt(3, "/a"), returned(3, 0), execd(3, "/a"), returned(3, 0), end(3)}, "exec exit gap"},
		"the search of PATH":            {[]trace.Message{attempt(2, "/x/a"), returned(2, 0), attempt(2, "/a"), returned(2, 0), execd(2, "/a")}, "exec"},
		"the search, none found":        {[]trace.Message{attempt(2, "/x/a"), returned(2, 0), attempt(2, "/y/a"), returned(2, 0), end(2)}, "gap"},
		"another call is no execve":     {[]trace.Message{{Process: trace.Process{PID: 3}, Raw: &trace.Raw{Number: unix.SYS_READ}}}, ""},
		"messages of others in between": {[]trace.Message{clone(2, 4), attempt(3, "/a"), attempt(4, "/b"), returned(4, 0), returned(3, 0), execd(4, "/b"), execd(3, "/a")}, "exec exec"},
	} {
		w := watch(t)
		w.send(clone(2, 3))
		w.send(tc.list...)
		if kinds, _ := w.took(); kinds != tc.kinds {
			t.Errorf("%s: %q, want %q", name, kinds, tc.kinds)
		}
	}
}

// The first process of a cell is no part of a step; a process that only looks like it is.
func TestObserveFirstProcess(t *testing.T) {
	memory := execd(2, "/dev/fd/14", "cell")
	memory.Exec.Memory = true
	w := watch(t)
	w.send(attempt(2, ""), returned(2, 0), memory, end(2))
	if kinds, _ := w.took(); kinds != "" {
		t.Errorf("the first process of a cell: %q", kinds)
	}
	w = watch(t)
	w.send(attempt(2, "/bin/sh"), returned(2, 0), execd(2, "/bin/sh", "sh"), attempt(2, ""), returned(2, 0), memory)
	if kinds, _ := w.took(); kinds != "exec exec" {
		t.Errorf("a program in memory after another one: %q", kinds)
	}
	w = watch(t)
	w.send(returned(2, 0), attempt(2, ""), returned(2, 0), memory)
	if kinds, _ := w.took(); kinds != "exec" {
		t.Errorf("a program in memory after one that gVisor did not report: %q", kinds)
	}
}

func TestObserveDropped(t *testing.T) {
	w := watch(t)
	first, second := execd(2, "/a"), end(2)
	first.Dropped, second.Dropped = 5, 5
	w.send(first, second)
	if kinds, lost := w.took(); kinds != "gap exec exit" || lost != 5 {
		t.Errorf("%q, %d lost", kinds, lost)
	}
	wrapped := execd(2, "/a")
	w.dropped, wrapped.Dropped = ^uint32(0), 2
	w.send(wrapped)
	if _, lost := w.took(); lost != 3 {
		t.Errorf("a counter that wraps around: %d lost, want 3", lost)
	}
}

// A process is its PID and its start: of two with the same PID each has its own parent and program.
// Init makes a socket at the end of a step: without its message others before it can be missing, too.
func TestObserveMark(t *testing.T) {
	w := watch(t)
	v := &vm{stream: &trace.Stream{}}
	socket := func(pid int) trace.Message {
		m := by(pid)
		m.Socket = &trace.Socket{FD: 9, Family: unix.AF_UNIX}
		return m
	}
	w.send(clone(2, 3), execd(3, "/bin/true", "true"), socket(3), end(3))
	if err := v.tail(w.observer); err == nil || !strings.Contains(err.Error(), "last message") {
		t.Errorf("without the mark: %v", err)
	}
	w.send(socket(1))
	if err := v.tail(w.observer); err != nil {
		t.Errorf("with it: %v", err)
	}
	w.begin("next")
	if err := v.tail(w.observer); err == nil {
		t.Error("the mark of a step counts for the next")
	}
}

func TestObserveReusedPID(t *testing.T) {
	w := watch(t)
	w.send(execd(2, "/sh"), clone(2, 3), execd(3, "/one"), end(3))
	again := clone(2, 3)
	again.Clone.Start = 1000
	second := execd(3, "/two")
	second.Process.Start = 1000
	w.send(again, second)
	var procs []string
	for _, ev := range w.events {
		if ev.Exec != nil {
			procs = append(procs, ev.Exec.Proc)
		}
	}
	slices.Sort(procs)
	if len(slices.Compact(procs)) != 3 {
		t.Errorf("processes %q", procs)
	}
}

func TestObserveConnect(t *testing.T) {
	w := watch(t)
	socket, connect := by(2), by(2)
	socket.Socket = &trace.Socket{FD: 3, Family: unix.AF_INET, Type: unix.SOCK_DGRAM}
	connect.Connect = &trace.Connect{FD: 3, To: netip.MustParseAddrPort("198.18.0.1:53")}
	w.send(socket, connect)
	inbound := by(1)
	inbound.Socket = &trace.Socket{FD: 3, Family: unix.AF_INET, Type: unix.SOCK_STREAM}
	w.send(inbound)
	inbound.Socket, inbound.Connect = nil, connect.Connect
	w.send(inbound) // a connection of the host's, through init
	if w.marks != 0 {
		t.Error("a connection of the host's is taken for the end of a command")
	}
	if f := w.events[0].Flow; len(w.events) != 1 || f.Proto != "udp" || f.DstPort != 53 || f.Proc == "" {
		t.Errorf("%+v", w.events)
	}
}

func TestCutArgv(t *testing.T) {
	for _, tc := range []struct {
		argv      []string
		kept      int
		truncated bool
	}{
		{[]string{"a", ""}, 2, false},
		{[]string{strings.Repeat("x", argvKept-1)}, 1, false},
		{[]string{strings.Repeat("x", argvKept)}, 1, true},
		{slices.Repeat([]string{"x"}, argvKept), argvKept / 2, true},
	} {
		x := &audit.Exec{}
		cutArgv(x, tc.argv)
		if len(x.Argv) != tc.kept || x.Truncated != tc.truncated || tc.truncated != (x.ArgvSHA256 != "") {
			t.Errorf("%d arguments: %d kept, truncated %v", len(tc.argv), len(x.Argv), x.Truncated)
		}
	}
}
