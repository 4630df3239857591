package audit

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// AppendJSON appends e as encoding/json encodes it. It encodes the most frequent kinds
// without reflection, at a fraction of the cost.
func (e *Event) AppendJSON(b []byte) ([]byte, error) {
	if !e.claim() {
		whole, err := json.Marshal(e)
		return append(b, whole...), err
	}
	return e.write(b).b, nil
}

// AppendPlain appends e as encoding/json encodes it, with and without escaped HTML, and reports whether it can: only the
// most frequent kinds can, and only without characters that HTML escapes, or that are not ASCII, in other texts than those of type Text.
func (e *Event) AppendPlain(b []byte) ([]byte, bool) {
	if !e.claim() {
		return b, false
	}
	size := 512
	if e.Output != nil {
		size += len(e.Output.Text) + len(e.Output.Text)/8
	}
	w := e.write(slices.Grow(b, size))
	return w.b, !w.escaped
}

// write writes an event that claim accepts.
func (e *Event) write(b []byte) writer {
	w := writer{b: append(b, '{')}
	w.time("time", e.Time)
	w.string("observer", string(e.Observer))
	w.string("kind", string(e.Kind))
	w.stringIf("step", e.Step)
	if g := e.Guest; g != nil {
		w.object("guest_time")
		w.time("time", g.Time)
		w.int("offset_ns", g.OffsetNS)
		w.end()
	}
	switch {
	case e.Exec != nil:
		e.Exec.write(&w)
	case e.Exit != nil:
		e.Exit.write(&w)
	case e.File != nil:
		e.File.write(&w)
	case e.Output != nil:
		e.Output.write(&w)
	}
	w.b = append(w.b, '}')
	return w
}

// claim reports whether the event is exactly one exec, exit, file or output, with years that JSON can hold.
func (e *Event) claim() bool {
	if e.Guest != nil && !fourDigits(e.Guest.Time) || !fourDigits(e.Time) {
		return false
	}
	only := Event{Time: e.Time, Observer: e.Observer, Kind: e.Kind, Step: e.Step, Guest: e.Guest}
	switch {
	case e.Exec != nil && e.Exec.Argv != nil:
		only.Exec = e.Exec
	case e.Exit != nil:
		only.Exit = e.Exit
	case e.File != nil:
		only.File = e.File
	case e.Output != nil:
		only.Output = e.Output
	default:
		return false
	}
	return *e == only
}

func fourDigits(t time.Time) bool {
	return t.Location() == time.UTC && t.Year() >= 0 && t.Year() < 10000
}

func (x *Exec) write(w *writer) {
	w.object("exec")
	w.string("proc", x.Proc)
	w.stringIf("parent", x.Parent)
	w.int("pid", int64(x.PID))
	w.int("ppid", int64(x.PPID))
	w.text("exe", x.Exe)
	w.name("argv")
	w.b = append(w.b, '[')
	for i, a := range x.Argv {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.value(a)
	}
	w.b = append(w.b, ']')
	w.text("cwd", x.Cwd)
	w.int("uid", int64(x.UID))
	w.yes("truncated", x.Truncated)
	w.intIf("argv_bytes", int64(x.ArgvBytes))
	w.stringIf("argv_sha256", x.ArgvSHA256)
	w.stringIf("llm", x.LLM)
	w.textIf("tool_call", x.ToolCall)
	w.end()
}

func (x *Exit) write(w *writer) {
	w.object("exit")
	w.string("proc", x.Proc)
	w.int("pid", int64(x.PID))
	w.int("code", int64(x.Code))
	w.intIf("signal", int64(x.Signal))
	w.int("duration_ns", x.DurationNS)
	w.yes("synthetic", x.Synthetic)
	w.end()
}

func (f *File) write(w *writer) {
	w.object("file")
	w.stringIf("proc", f.Proc)
	w.intIf("pid", int64(f.PID))
	w.stringIf("parent", f.Parent)
	w.string("op", string(f.Op))
	w.text("path", f.Path)
	w.textIf("to", f.To)
	w.textIf("source", f.Source)
	w.stringIf("device", f.Device)
	w.stringIf("inode", f.Inode)
	w.int("size", f.Size)
	w.stringIf("sha256", f.SHA256)
	w.stringIf("unhashed", f.Unhashed)
	w.stringsIf("secrets", f.Secrets)
	w.textIf("caller", f.Caller)
	w.intIf("offset", f.Offset)
	w.textIf("error", f.Error)
	w.end()
}

func (o *Output) write(w *writer) {
	w.object("output")
	w.string("stream", o.Stream)
	w.int("offset", o.Offset)
	w.text("text", o.Text)
	w.end()
}

// writer writes members of JSON objects.
type writer struct {
	b       []byte
	escaped bool // a text that is not of type Text has characters that encoding/json may escape
}

func (w *writer) name(name string) {
	if last := w.b[len(w.b)-1]; last != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(append(append(w.b, '"'), name...), '"', ':')
}

func (w *writer) object(name string) {
	w.name(name)
	w.b = append(w.b, '{')
}

func (w *writer) end() { w.b = append(w.b, '}') }

// value writes a text, which is never an error: see Text.MarshalJSON.
func (w *writer) value(t Text) {
	if b, ok := t.appendASCII(w.b); ok {
		w.b = b
		return
	}
	b, _ := t.MarshalJSON()
	w.b = append(w.b, b...)
}

func (w *writer) text(name string, t Text) {
	w.name(name)
	w.value(t)
}

func (w *writer) textIf(name string, t Text) {
	if t != "" {
		w.text(name, t)
	}
}

func (w *writer) string(name, s string) {
	w.name(name)
	if Text(s).plain() {
		w.b = append(append(append(w.b, '"'), s...), '"')
		return
	}
	w.escaped = true
	b, _ := json.Marshal(s) // a string is never an error
	w.b = append(w.b, b...)
}

func (w *writer) stringIf(name, s string) {
	if s != "" {
		w.string(name, s)
	}
}

func (w *writer) stringsIf(name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.name(name)
	w.b = append(w.b, '[')
	for i, s := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.value(Text(s))
	}
	w.b = append(w.b, ']')
}

func (w *writer) int(name string, n int64) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *writer) intIf(name string, n int64) {
	if n != 0 {
		w.int(name, n)
	}
}

func (w *writer) yes(name string, v bool) {
	if v {
		w.name(name)
		w.b = append(w.b, "true"...)
	}
}

func (w *writer) time(name string, t time.Time) {
	w.name(name)
	w.b = append(t.AppendFormat(append(w.b, '"'), time.RFC3339Nano), '"')
}
