package ecs

import (
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

// program writes a process's program from an execve.
func program(in wire.Object, x *audit.Exec) {
	if x.Exe != "" {
		in.Str("name", wire.Base(string(x.Exe)))
		in.Str("executable", string(x.Exe))
	}
	in.Texts("args", x.Argv)
	if !x.Truncated {
		in.IntIf("args_count", int64(len(x.Argv)))
	}
	in.Command("command_line", x.Argv)
	in.StrIf("working_directory", string(x.Cwd))
	u := in.Obj("user")
	u.Const("id", strconv.Itoa(x.UID))
	u.End()
}

// parentProcess writes process.parent.
func parentProcess(in wire.Object, proc string, pid int, x *audit.Exec) {
	o := in.Obj("parent")
	o.StrIf("entity_id", proc)
	o.IntIf("pid", int64(pid))
	if x != nil {
		program(o, x)
	}
	o.End()
}

// actor writes the process of the guest that caused the event, as the guest claims.
func actor(in wire.Object, e *export.Event, proc string, pid int, parent string) {
	o := in.Obj("process")
	ids(o, proc, pid)
	if x := e.Exec; x != nil {
		program(o, x)
		parentProcess(o, x.Parent, x.PPID, nil)
	} else {
		parentProcess(o, parent, 0, nil)
	}
	o.End()
}

func ids(in wire.Object, proc string, pid int) {
	in.StrIf("entity_id", proc)
	in.IntIf("pid", int64(pid))
}

func execEvent(d *doc, x audit.Exec) {
	top := d.head(class{kind: "event", category: []string{"process"}, types: []string{"start"}, action: "exec", outcome: "success"})
	o := top.Obj("process")
	ids(o, x.Proc, x.PID)
	program(o, &x)
	parentProcess(o, x.Parent, x.PPID, d.e.Parent)
	o.End()
	u := top.Obj("user")
	u.Const("id", strconv.Itoa(x.UID))
	u.End()

	left := d.custody("exec")
	left.BoolIf("truncated", x.Truncated)
	left.IntIf("argv_bytes", int64(x.ArgvBytes))
	left.StrIf("argv_sha256", x.ArgvSHA256)
	left.StrIf("llm", x.LLM)
	left.StrIf("tool_call", string(x.ToolCall))
}

func exitEvent(d *doc, x audit.Exit) {
	outcome := "success"
	switch {
	case x.Synthetic:
		outcome = "unknown"
	case x.Code != 0:
		outcome = "failure"
	}
	top := d.head(class{kind: "event", category: []string{"process"}, types: []string{"end"}, action: "exit",
		outcome: outcome, duration: x.DurationNS})
	o := top.Obj("process")
	ids(o, x.Proc, x.PID)
	o.Int("exit_code", int64(x.Code))
	o.Time("end", d.e.Time)
	if e := d.e.Exec; e != nil {
		program(o, e)
		parentProcess(o, e.Parent, e.PPID, nil)
	}
	o.End()

	left := d.custody("exit")
	left.IntIf("signal", int64(x.Signal))
	left.BoolIf("synthetic", x.Synthetic)
}

func fileEvent(d *doc, f audit.File) {
	typ := "info"
	switch f.Op {
	case audit.FileCreate:
		typ = "creation"
	case audit.FileWrite, audit.FileRename:
		typ = "change"
	case audit.FileRead:
		typ = "access"
	case audit.FileDelete:
		typ = "deletion"
	}
	outcome := "success"
	if f.Error != "" {
		outcome = "failure"
	}
	top := d.head(class{kind: "event", category: []string{"file"}, types: []string{typ}, action: "file-" + string(f.Op), outcome: outcome})
	path := string(f.Path)
	if f.To != "" {
		path = string(f.To)
	}
	o := top.Obj("file")
	o.Str("path", path)
	o.Str("name", wire.Base(path))
	o.StrIf("directory", wire.Dir(path))
	if b := wire.Base(path); strings.LastIndexByte(b, '.') > 0 {
		o.StrIf("extension", b[strings.LastIndexByte(b, '.')+1:])
	}
	o.Int("size", f.Size)
	o.StrIf("inode", f.Inode)
	o.StrIf("device", f.Device)
	if f.SHA256 != "" {
		h := o.Obj("hash")
		h.Str("sha256", f.SHA256)
		h.End()
		d.seen.addHash(f.SHA256)
	}
	o.End()
	if f.Proc != "" || f.PID != 0 {
		actor(top, d.e, f.Proc, f.PID, f.Parent)
	}

	left := d.custody("file")
	if f.To != "" {
		left.Str("original_path", string(f.Path))
	}
	left.StrIf("unhashed", f.Unhashed)
	left.Strs("secrets", f.Secrets)
	left.StrIf("source", string(f.Source))
	left.StrIf("caller", string(f.Caller))
	left.IntIf("offset", f.Offset)
	left.StrIf("error", string(f.Error))
	orphan(left, d.e, f.Proc, f.PID, f.Parent)
}

// orphan writes a parent that has no field in process.
func orphan(in wire.Object, e *export.Event, proc string, pid int, parent string) {
	if parent != "" && (e.Exec != nil || proc == "" && pid == 0) {
		in.Str("parent", parent)
	}
}
