package ocsf

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
)

func (d *doc) exec(x audit.Exec) {
	d.head(1007, 1, "", success)
	d.secured(logged, true)
	d.parentActor(x)
	d.device(false)
	o := d.Obj("process")
	d.process(x.Proc, x.PID, &x)
	d.End(o)
	d.see("process", "name", seenProcess, wire.Base(string(x.Exe)))
	d.seeFile("process.file", string(x.Exe))

	d.unmapped()
	if !d.has(sinceWorkingDir) {
		d.StrIf("cwd", string(x.Cwd))
	}
	d.BoolIf("truncated", x.Truncated)
	d.IntIf("argv_bytes", int64(x.ArgvBytes))
	d.StrIf("argv_sha256", x.ArgvSHA256)
	d.StrIf("llm", x.LLM)
	d.StrIf("tool_call", string(x.ToolCall))
}

// parentActor writes as the actor the process that started another.
func (d *doc) parentActor(x audit.Exec) {
	if x.Parent == "" && x.PPID == 0 {
		d.stepActor()
		return
	}
	o := d.Obj("actor")
	p := d.Obj("process")
	d.process(x.Parent, x.PPID, d.e.Parent)
	d.End(p)
	d.End(o)
}

func (d *doc) seeFile(at, path string) {
	if path == "" {
		return
	}
	d.see(at, "name", seenFile, wire.Base(path))
	if d.has(sincePathSeen) {
		d.see(at, "path", seenPath, path)
	}
}

func (d *doc) exit(x audit.Exit) {
	status := success
	if x.Synthetic {
		status = unknown
	}
	d.head(1007, 2, "", status)
	d.secured(logged, true)
	d.procActor(x.Proc, x.PID, "")
	d.device(false)
	if !x.Synthetic {
		d.Int("exit_code", int64(x.Code))
	}
	d.ms("duration", x.DurationNS)
	o := d.Obj("process")
	d.process(x.Proc, x.PID, d.e.Exec)
	d.Int("terminated_time", d.e.Time.UnixMilli())
	d.End(o)
	if d.e.Exec != nil {
		d.see("process", "name", seenProcess, wire.Base(string(d.e.Exec.Exe)))
	}

	d.unmapped()
	d.IntIf("signal", int64(x.Signal))
	d.BoolIf("synthetic", x.Synthetic)
	if x.Synthetic {
		d.Int("code", int64(x.Code))
	}
}

func (d *doc) file(f audit.File) {
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
	d.head(1001, activity, string(f.Op), success)
	d.secured(logged, true)
	d.procActor(f.Proc, f.PID, f.Parent)
	d.device(false)
	d.fileObject("file", string(f.Path), f, kind)
	d.seeFile("file", string(f.Path))
	if f.To != "" {
		d.fileObject("file_result", string(f.To), f, kind)
		d.seeFile("file_result", string(f.To))
	}
	d.see("file.hashes", "value", seenHash, f.SHA256)

	d.unmapped()
	d.StrIf("unhashed", f.Unhashed)
	d.Strs("secrets", f.Secrets)
	d.StrIf("device", f.Device)
	d.StrIf("source", string(f.Source))
	if f.Parent != "" && d.e.Exec != nil {
		d.Str("parent", f.Parent)
	}
}

func (d *doc) fileObject(key, path string, f audit.File, kind int) {
	o := d.Obj(key)
	d.pathIn(path, kind)
	d.Int("size", f.Size)
	d.StrIf("uid", f.Inode)
	if f.SHA256 != "" {
		a := d.Arr("hashes")
		h := d.Elem()
		d.Int("algorithm_id", 3)
		d.Const("algorithm", "SHA-256")
		d.Str("value", f.SHA256)
		d.End(h)
		d.EndArr(a)
	}
	d.End(o)
}
