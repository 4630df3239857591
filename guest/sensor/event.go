package sensor

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"github.com/custody-project/custody/audit"
)

// argvKept is the maximum size of an argv that the programs send.
const argvKept = 32 << 10

// ProcID returns a unique name of a process: a pid is used again, but a pid with a start time
// (nanoseconds of the boot clock) is unique within a boot.
func ProcID(boot, run string, pid int, start uint64) string {
	h := sha256.New()
	fmt.Fprintf(h, "custody proc 1\x00%s\x00%s\x00%d\x00%d", boot, run, pid, start)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

type procKey struct {
	pid   uint32
	start uint64
}

// maxProcs bounds the Proc ids that are remembered.
const maxProcs = 1024

// join appends chunks of argv to their exec. It drops chunks whose exec was lost.
func join(records []record) []record {
	var out []record
	execs := make(map[[2]uint64]*execRecord)
	for _, r := range records {
		key := [2]uint64{uint64(r.pid), r.time}
		switch body := r.body.(type) {
		case *execRecord:
			if len(body.argv) < body.argvSize {
				execs[key] = body
			}
		case *argvRecord:
			if e := execs[key]; e != nil && len(e.argv) == body.offset {
				e.argv = append(e.argv[:len(e.argv):len(e.argv)], body.data...)
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// partial reports that more of an exec's argv can still come.
func partial(r record) bool {
	e, ok := r.body.(*execRecord)
	return ok && len(e.argv) > 0 && len(e.argv) < min(e.argvSize, argvKept)
}

// report turns a record into events and pushes them.
func (c *collector) report(r record, wall int64) {
	st := c.step(r.step)
	event := func(kind audit.Kind) *audit.Event {
		return &audit.Event{Observer: audit.Guest, Kind: kind, Step: st.name, Guest: guestTime(r.time, wall)}
	}
	switch body := r.body.(type) {
	case *execRecord:
		e := event(audit.KindExec)
		e.Exec = c.exec(r.head, body)
		c.line.push(&item{event: e, ready: true})
	case *exitRecord:
		e := event(audit.KindExit)
		e.Exit = exit(r.head, body, c.proc(r.pid, r.start))
		c.line.push(&item{event: e, ready: true})
	case *flowRecord:
		e := event(audit.KindFlow)
		e.Flow = flow(body)
		e.Flow.Proc, e.Flow.PID, e.Flow.Parent = c.proc(r.pid, r.start), int(r.pid), c.unexecedParent(r.head)
		c.line.push(&item{event: e, ready: true})
	case *fileRecord:
		for _, f := range files(body) {
			e := event(audit.KindFile)
			e.File = f
			f.Proc, f.PID, f.Parent = c.proc(r.pid, r.start), int(r.pid), c.unexecedParent(r.head)
			c.file(e, r.head, body, st.root)
		}
	}
}

// proc is ProcID with a cache: a process has many events.
func (c *collector) proc(pid uint32, start uint64) string {
	key := procKey{pid, start}
	if id, ok := c.procs[key]; ok {
		return id
	}
	if len(c.procs) == maxProcs {
		clear(c.procs)
	}
	id := ProcID(c.set.Boot, c.set.Run, int(pid), start)
	c.procs[key] = id
	return id
}

func (c *collector) parent(h head) string {
	if h.originPID == 0 {
		return ""
	}
	return c.proc(h.originPID, h.originStart)
}

// unexecedParent is the parent's id for a process that has no exec event to look it up in.
func (c *collector) unexecedParent(h head) string {
	if h.flags&procExeced != 0 {
		return ""
	}
	return c.parent(h)
}

func (c *collector) exec(h head, r *execRecord) *audit.Exec {
	e := &audit.Exec{
		Proc:   c.proc(h.pid, h.start),
		Parent: c.parent(h),
		PID:    int(h.pid),
		PPID:   int(r.ppid),
		Exe:    audit.Text(r.exe.String()),
		Argv:   split(r.argv),
		Cwd:    audit.Text(r.cwd.String()),
		UID:    int(int32(r.uid)),
	}
	if len(r.argv) < r.argvSize {
		e.Truncated = true
		e.ArgvBytes = r.argvSize
		e.ArgvSHA256 = wholeArgv(h.pid, r)
	}
	return e
}

// split cuts NUL-terminated strings apart; the last may lack its NUL.
func split(b []byte) []audit.Text {
	b = bytes.TrimSuffix(b, []byte{0})
	args := []audit.Text{}
	for _, a := range bytes.Split(b, []byte{0}) {
		args = append(args, audit.Text(a))
	}
	return args
}

// wholeArgv hashes a long argv in the process's memory. The process may have changed it or
// ended: if the length or the part that the
// kernel sent differ, there is no digest.
func wholeArgv(pid uint32, r *execRecord) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/cmdline")
	if err != nil || len(b) != r.argvSize || !bytes.HasPrefix(b, r.argv) {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// exit decodes a status as wait(2) gives it. A signal's code is 128 and the signal, as in shells.
func exit(h head, r *exitRecord, proc string) *audit.Exit {
	e := &audit.Exit{Proc: proc, PID: int(h.pid), Code: int(r.status>>8) & 0xff, Signal: int(r.status & 0x7f)}
	if e.Signal != 0 {
		e.Code = 128 + e.Signal
	}
	if h.time > r.execed {
		e.DurationNS = int64(h.time - r.execed)
	}
	return e
}

// flow names both ends as they are on the wire: an IPv4 address that a program
// wrapped into an IPv6 one is IPv4's.
func flow(r *flowRecord) *audit.Flow {
	const inet = 2
	remote, local := netip.AddrFrom16(r.addr).Unmap(), netip.AddrFrom16(r.local6)
	if r.family == inet {
		remote = netip.AddrFrom4([4]byte(r.addr[:4]))
	}
	if remote.Is4() {
		local = netip.AddrFrom4(r.local4)
	}
	f := &audit.Flow{State: audit.FlowAttempt, Proto: proto(r.proto), SrcPort: int(r.localPort), DstIP: remote.String(), DstPort: int(r.port), Errno: int(r.errno)}
	if !local.IsUnspecified() { // bound to none in particular, or already given back
		f.SrcIP = local.String()
	}
	return f
}

// proto names IANA's protocol numbers as audit.Flow does.
func proto(n uint16) string {
	switch n {
	case 1, 58:
		return "icmp"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	}
	return strconv.Itoa(int(n))
}

// files gives the operations that one record stands for: a rename can delete
// what had the new name, or swap two names.
func files(r *fileRecord) []*audit.File {
	name := r.path
	if r.op != opWrite && r.op != opRead {
		name.flags &^= pathDeleted
	}
	f := fileAt(name, r.dev, r.ino)
	f.Size = r.size
	switch r.op {
	case opCreate:
		f.Op = audit.FileCreate
	case opWrite:
		f.Op = audit.FileWrite
	case opRead:
		f.Op = audit.FileRead
		if r.flags&fileSecret != 0 {
			f.Size = 0 // it is the value's
		}
	case opDelete:
		f.Op = audit.FileDelete
	case opRename:
		return renames(f, r)
	case opLink:
		f.Op, f.Source = audit.FileCreate, audit.Text(r.to.String())
	case opChroot:
		f.Op = audit.FileChroot
	default:
		f.Op = audit.FileOp(strconv.Itoa(int(r.op)))
	}
	return []*audit.File{f}
}

func renames(f *audit.File, r *fileRecord) []*audit.File {
	to := r.to
	to.flags &^= pathDeleted
	f.Op, f.To = audit.FileRename, audit.Text(to.String())
	other := fileAt(to, r.dev, r.toIno)
	if r.flags&fileReplaced != 0 {
		other.Op = audit.FileDelete
		return []*audit.File{other, f}
	}
	if r.flags&fileExchanged != 0 {
		other.Op, other.To = audit.FileRename, f.Path
		return []*audit.File{f, other}
	}
	return []*audit.File{f}
}

const minorBits = 20 // of the kernel's own device numbers

// fileAt names a file by its path, and by its device and inode as stat(2) gives them.
func fileAt(p path, dev uint32, ino uint64) *audit.File {
	return &audit.File{
		Path:   audit.Text(p.String()),
		Device: fmt.Sprintf("%d:%d", dev>>minorBits, dev&(1<<minorBits-1)),
		Inode:  strconv.FormatUint(ino, 10),
	}
}

// file pushes a file event, and queues the file for hashing if the event gets a digest.
func (c *collector) file(e *audit.Event, h head, r *fileRecord, root string) {
	it := &item{event: e}
	if !c.hashed(r) {
		it.ready = true
		c.line.push(it)
		return
	}
	if r.size == 0 {
		e.File.SHA256 = emptySum
		it.ready = true
		c.line.push(it)
		return
	}
	c.line.push(it)
	cl := &closing{
		item: it, inode: r.inode, ino: r.ino, dev: r.dev, generation: r.generation, size: r.size, shared: r.flags&fileShared != 0,
		pid: h.pid, root: root, path: string(e.File.Path), cycle: c.cycle,
	}
	if r.flags&fileHandle != 0 {
		c.pending[cl.inode] = append(c.pending[cl.inode], cl)
		return
	}
	c.hasher.add(nil, state{}, []*closing{cl})
}

// hashed reports whether the event gets a digest. With the digest of a secret, readers of the record could test guesses.
func (c *collector) hashed(r *fileRecord) bool {
	if r.flags&fileSecret != 0 {
		return false
	}
	if r.op == opRead {
		return true
	}
	return r.op == opWrite && (c.set.HashOver <= 0 || r.size > c.set.HashOver)
}
