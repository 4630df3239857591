package ecs

import (
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
)

// program writes what an execve says of a process into the object that is open.
func (d *doc) program(x *audit.Exec) {
	if x.Exe != "" {
		d.Str("name", wire.Base(string(x.Exe)))
		d.Str("executable", string(x.Exe))
	}
	d.Texts("args", x.Argv)
	if !x.Truncated {
		d.IntIf("args_count", int64(len(x.Argv)))
	}
	d.Command("command_line", x.Argv)
	d.StrIf("working_directory", string(x.Cwd))
	u := d.Obj("user")
	d.Const("id", strconv.Itoa(x.UID))
	d.End(u)
}

// parent writes process.parent.
func (d *doc) parent(proc string, pid int, x *audit.Exec) {
	o := d.Obj("parent")
	d.StrIf("entity_id", proc)
	d.IntIf("pid", int64(pid))
	if x != nil {
		d.program(x)
	}
	d.End(o)
}

// actor writes the process of the guest that did something, as the guest says.
func (d *doc) actor(proc string, pid int, parent string) {
	o := d.Obj("process")
	d.ids(proc, pid)
	if x := d.e.Exec; x != nil {
		d.program(x)
		d.parent(x.Parent, x.PPID, nil)
	} else {
		d.parent(parent, 0, nil)
	}
	d.End(o)
}

func (d *doc) ids(proc string, pid int) {
	d.StrIf("entity_id", proc)
	d.IntIf("pid", int64(pid))
}

func (d *doc) exec(x audit.Exec) {
	d.head(class{kind: "event", category: []string{"process"}, types: []string{"start"}, action: "exec", outcome: "success"})
	o := d.Obj("process")
	d.ids(x.Proc, x.PID)
	d.program(&x)
	d.parent(x.Parent, x.PPID, d.e.Parent)
	d.End(o)
	u := d.Obj("user")
	d.Const("id", strconv.Itoa(x.UID))
	d.End(u)

	d.custody("exec")
	d.BoolIf("truncated", x.Truncated)
	d.IntIf("argv_bytes", int64(x.ArgvBytes))
	d.StrIf("argv_sha256", x.ArgvSHA256)
	d.StrIf("llm", x.LLM)
	d.StrIf("tool_call", string(x.ToolCall))
}

func (d *doc) exit(x audit.Exit) {
	outcome := "success"
	switch {
	case x.Synthetic:
		outcome = "unknown"
	case x.Code != 0:
		outcome = "failure"
	}
	d.head(class{kind: "event", category: []string{"process"}, types: []string{"end"}, action: "exit",
		outcome: outcome, duration: x.DurationNS})
	o := d.Obj("process")
	d.ids(x.Proc, x.PID)
	d.Int("exit_code", int64(x.Code))
	d.Time("end", d.e.Time)
	if e := d.e.Exec; e != nil {
		d.program(e)
		d.parent(e.Parent, e.PPID, nil)
	}
	d.End(o)

	d.custody("exit")
	d.IntIf("signal", int64(x.Signal))
	d.BoolIf("synthetic", x.Synthetic)
}

func (d *doc) file(f audit.File) {
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
	d.head(class{kind: "event", category: []string{"file"}, types: []string{typ}, action: "file-" + string(f.Op), outcome: "success"})
	path := string(f.Path)
	if f.To != "" {
		path = string(f.To)
	}
	o := d.Obj("file")
	d.Str("path", path)
	d.Str("name", wire.Base(path))
	d.StrIf("directory", wire.Dir(path))
	if b := wire.Base(path); strings.LastIndexByte(b, '.') > 0 {
		d.StrIf("extension", b[strings.LastIndexByte(b, '.')+1:])
	}
	d.Int("size", f.Size)
	d.StrIf("inode", f.Inode)
	d.StrIf("device", f.Device)
	if f.SHA256 != "" {
		h := d.Obj("hash")
		d.Str("sha256", f.SHA256)
		d.End(h)
		d.seeHash(f.SHA256)
	}
	d.End(o)
	if f.Proc != "" || f.PID != 0 {
		d.actor(f.Proc, f.PID, f.Parent)
	}

	d.custody("file")
	if f.To != "" {
		d.Str("original_path", string(f.Path))
	}
	d.StrIf("unhashed", f.Unhashed)
	d.Strs("secrets", f.Secrets)
	d.StrIf("source", string(f.Source))
	d.orphan(f.Proc, f.PID, f.Parent)
}

// orphan writes a parent that process had no place for.
func (d *doc) orphan(proc string, pid int, parent string) {
	if parent != "" && (d.e.Exec != nil || proc == "" && pid == 0) {
		d.Str("parent", parent)
	}
}
