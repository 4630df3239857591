package ocsf

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

func execEvent(d *doc, x audit.Exec) {
	top := d.head(1007, 1, "", success)
	d.secured(logged, true)
	parentActor(top, d.e, d.v, x)
	d.device(false)
	o := top.Obj("process")
	process(o, d.v, x.Proc, x.PID, &x)
	o.End()
	d.seen.add("process", "name", seenProcess, wire.Base(string(x.Exe)))
	d.seen.file(d.v, "process.file", string(x.Exe))

	left := d.unmapped()
	if !d.v.has(sinceWorkingDir) {
		left.StrIf("cwd", string(x.Cwd))
	}
	left.BoolIf("truncated", x.Truncated)
	left.IntIf("argv_bytes", int64(x.ArgvBytes))
	left.StrIf("argv_sha256", x.ArgvSHA256)
	left.StrIf("llm", x.LLM)
	left.StrIf("tool_call", string(x.ToolCall))
}

// parentActor writes the process that started another as the actor.
func parentActor(in wire.Object, e *export.Event, v minor, x audit.Exec) {
	if x.Parent == "" && x.PPID == 0 {
		stepActor(in, e, v)
		return
	}
	o := in.Obj("actor")
	p := o.Obj("process")
	process(p, v, x.Parent, x.PPID, e.Parent)
	p.End()
	o.End()
}

func exitEvent(d *doc, x audit.Exit) {
	status := success
	if x.Synthetic {
		status = unknown
	}
	top := d.head(1007, 2, "", status)
	d.secured(logged, true)
	procActor(top, d.e, d.v, x.Proc, x.PID, "")
	d.device(false)
	if !x.Synthetic {
		top.Int("exit_code", int64(x.Code))
	}
	ms(top, "duration", x.DurationNS)
	o := top.Obj("process")
	process(o, d.v, x.Proc, x.PID, d.e.Exec)
	o.Int("terminated_time", d.e.Time.UnixMilli())
	o.End()
	if d.e.Exec != nil {
		d.seen.add("process", "name", seenProcess, wire.Base(string(d.e.Exec.Exe)))
	}

	left := d.unmapped()
	left.IntIf("signal", int64(x.Signal))
	left.BoolIf("synthetic", x.Synthetic)
	if x.Synthetic {
		left.Int("code", int64(x.Code))
	}
}

func fileEvent(d *doc, f audit.File) {
	activity, kind := other, 0
	switch f.Op {
	case audit.FileCreate:
		activity = 1
	case audit.FileRead:
		activity, kind = 2, 1
	case audit.FileWrite:
		activity, kind = 3, 1
	case audit.FileDelete:
		activity = 4
	case audit.FileRename:
		activity = 5
	}
	status := success
	if f.Error != "" {
		status = failure
	}
	top := d.head(1001, activity, string(f.Op), status)
	d.secured(logged, true)
	procActor(top, d.e, d.v, f.Proc, f.PID, f.Parent)
	d.device(false)
	fileObject(top, "file", string(f.Path), f, kind)
	d.seen.file(d.v, "file", string(f.Path))
	if f.To != "" {
		fileObject(top, "file_result", string(f.To), f, kind)
		d.seen.file(d.v, "file_result", string(f.To))
	}
	d.seen.add("file.hashes", "value", seenHash, f.SHA256)

	left := d.unmapped()
	left.StrIf("unhashed", f.Unhashed)
	left.Strs("secrets", f.Secrets)
	left.StrIf("device", f.Device)
	left.StrIf("source", string(f.Source))
	left.StrIf("caller", string(f.Caller))
	left.IntIf("offset", f.Offset)
	left.StrIf("error", string(f.Error))
	if f.Parent != "" && d.e.Exec != nil {
		left.Str("parent", f.Parent)
	}
}

func fileObject(in wire.Object, key, path string, f audit.File, kind int) {
	o := in.Obj(key)
	pathIn(o, path, kind)
	o.Int("size", f.Size)
	o.StrIf("uid", f.Inode)
	if f.SHA256 != "" {
		a := o.Arr("hashes")
		h := a.Elem()
		h.Int("algorithm_id", 3)
		h.Const("algorithm", "SHA-256")
		h.Str("value", f.SHA256)
		h.End()
		a.End()
	}
	o.End()
}
