package sensor

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

// raw builds records as the programs do, field by field, for the tests of decode.
type raw []byte

func (r raw) u8(v ...uint8) raw { return append(r, v...) }
func (r raw) u16(v uint16) raw  { return binary.LittleEndian.AppendUint16(r, v) }
func (r raw) u32(v uint32) raw  { return binary.LittleEndian.AppendUint32(r, v) }
func (r raw) u64(v uint64) raw  { return binary.LittleEndian.AppendUint64(r, v) }
func (r raw) text(s string) raw { return append(r, s...) }
func rawHead(kind, flags uint8) raw {
	return raw{}.u8(kind, flags).u16(0).u32(2).u64(1000).u64(900).u64(800).u32(42).u32(41)
}

func rawExec(exe, cwd, argv string, whole int) raw {
	return rawHead(kindExec, 0).u32(41).u32(1000).u32(uint32(whole)).u32(uint32(len(argv))).
		u16(uint16(len(exe))).u16(uint16(len(cwd))).u8(pathRooted, pathRooted).u16(0).text(exe + cwd + argv)
}

func rawFile(op, flags uint8, path, to string) raw {
	return rawHead(kindFile, procExeced).u64(0xffff).u64(50).u64(7).u64(60).u64(3).u32(8<<20|1).u32(0).
		u16(uint16(len(path))).u16(uint16(len(to))).u8(op, flags, pathRooted, pathRooted).text(path + to)
}

func rawFlow() raw {
	return rawHead(kindFlow, procExeced).text("\x7f\x00\x00\x01").u64(0).u32(0).u16(2).u16(443).u16(6).u16(40000).u32(111).text("\x7f\x00\x00\x02").u64(0).u64(0)
}

func TestDecode(t *testing.T) {
	r, err := decode(rawExec("x\x00bin\x00", "w\x00", "x\x00-v\x00", 5))
	if err != nil {
		t.Fatal(err)
	}
	want := head{kind: kindExec, step: 2, time: 1000, start: 900, originStart: 800, pid: 42, originPID: 41}
	if r.head != want {
		t.Errorf("head %+v, want %+v", r.head, want)
	}
	e := r.body.(*execRecord)
	if e.exe.String() != "/bin/x" || e.cwd.String() != "/w" || e.ppid != 41 || e.uid != 1000 || string(e.argv) != "x\x00-v\x00" {
		t.Errorf("exec %+v", e)
	}
	r, err = decode(rawFile(opRename, fileReplaced, "a\x00", "b\x00"))
	if err != nil {
		t.Fatal(err)
	}
	f := r.body.(*fileRecord)
	if f.inode != 0xffff || f.ino != 7 || f.size != 3 || f.generation != 50 || f.toIno != 60 || f.dev != 8<<20|1 ||
		f.op != opRename || f.flags != fileReplaced || f.path.String() != "/a" || f.to.String() != "/b" {
		t.Errorf("file %+v", f)
	}
	r, err = decode(rawFlow())
	if err != nil {
		t.Fatal(err)
	}
	if got := *flow(r.body.(*flowRecord)); got != (audit.Flow{State: "attempt", Proto: "tcp", SrcIP: "127.0.0.2", SrcPort: 40000, DstIP: "127.0.0.1", DstPort: 443, Errno: 111}) {
		t.Errorf("flow %+v", got)
	}
	for want, r := range map[string]*flowRecord{
		"[::1]:5>::2":         {family: 10, addr: [16]byte{15: 2}, localPort: 5, local6: [16]byte{15: 1}, local4: [4]byte{127, 0, 0, 6}},
		"1.2.3.4:5>127.0.0.1": {family: 10, addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}, localPort: 5, local4: [4]byte{1, 2, 3, 4}, local6: [16]byte{15: 1}},
		":5>::":               {family: 10, localPort: 5, local4: [4]byte{1}},
		":0>0.0.0.0":          {family: 2},
	} {
		f := flow(r)
		got := fmt.Sprintf("%s:%d>%s", f.SrcIP, f.SrcPort, f.DstIP)
		if strings.Contains(f.SrcIP, ":") {
			got = fmt.Sprintf("[%s]:%d>%s", f.SrcIP, f.SrcPort, f.DstIP)
		}
		if got != want {
			t.Errorf("flow %s, want %s", got, want)
		}
	}
	r, err = decode(rawHead(kindExit, 0).u64(700).u32(9).u32(0))
	if err != nil || *exit(r.head, r.body.(*exitRecord), "p") != (audit.Exit{Proc: "p", PID: 42, Code: 137, Signal: 9, DurationNS: 300}) {
		t.Errorf("exit %+v, %v", r, err)
	}
}

// FuzzDecode: no record makes decode fail otherwise than by an error, and what
// is cut short is refused.
func FuzzDecode(f *testing.F) {
	for _, r := range []raw{
		rawExec("x\x00", "\x00", "x\x00", 2), rawFile(opWrite, fileHandle, "a\x00b\x00", ""), rawFlow(),
		rawHead(kindArgv, 0).u32(0).u32(2).text("ab"), rawHead(kindExit, 0).u64(1).u64(2), rawHead(77, 0), {},
	} {
		f.Add([]byte(r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		var size int
		switch body := r.body.(type) {
		case *execRecord:
			size = execSize + len(body.exe.names) + len(body.cwd.names) + len(body.argv)
			_, _, _ = body.exe.String(), body.cwd.String(), split(body.argv)
		case *argvRecord:
			size = argvSize + len(body.data)
		case *exitRecord:
			size = exitSize
			exit(r.head, body, "")
		case *fileRecord:
			size = fileSize + len(body.path.names) + len(body.to.names)
			if len(files(body)) == 0 {
				t.Error("a record without an event")
			}
		case *flowRecord:
			size = flowSize
			flow(body)
		}
		if size > len(b) {
			t.Fatalf("%d bytes out of %d", size, len(b))
		}
		if size == len(b) && size > 0 {
			if _, err := decode(b[:size-1]); err == nil {
				t.Fatal("cut short, and accepted")
			}
		}
	})
}

// FuzzPath compares a path with one that is put together the simple way.
func FuzzPath(f *testing.F) {
	f.Add("", uint8(0))
	f.Add("leaf\x00dir\x00", uint8(pathDeleted))
	f.Add("no end", uint8(pathCut))
	f.Fuzz(func(t *testing.T, names string, flags uint8) {
		if names != "" && !strings.HasSuffix(names, "\x00") {
			names += "\x00" // as the programs write them
		}
		parts := strings.Split(names, "\x00")
		parts = parts[:len(parts)-1]
		slices.Reverse(parts)
		want := "/" + strings.Join(parts, "/")
		if flags&pathCut != 0 {
			want = "(...)" + strings.TrimSuffix(want, "/")
			if len(parts) > 0 {
				want = "(...)/" + strings.Join(parts, "/")
			}
		}
		if flags&(pathDeleted|pathPseudo) != 0 {
			want += " (deleted)"
		}
		if got := (path{[]byte(names), flags}).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// FuzzEvents: whatever fanotify's buffer holds, the walk ends and stays inside.
func FuzzEvents(f *testing.F) {
	event := raw{}.u32(eventSize).u8(3, 0).u16(eventSize).u64(8).u32(5).u32(42)
	f.Add([]byte(append(event, event...)), 2)
	f.Add([]byte(raw{}.u32(eventSize).u8(3, 0).u16(eventSize).u64(0x4000).u32(0xffffffff).u32(0)), 0)
	f.Add([]byte(raw{}.u32(0).u64(0).u64(0).u32(0)), 0)
	f.Fuzz(func(t *testing.T, b []byte, _ int) {
		var fds int
		n, _ := events(b, func(fd int) {
			if fd < 0 {
				t.Errorf("descriptor %d", fd)
			}
			fds++
		})
		if n > len(b)/eventSize || fds > n {
			t.Errorf("%d events, %d descriptors in %d bytes", n, fds, len(b))
		}
	})
}

func TestJoin(t *testing.T) {
	exec := func(pid uint32, time uint64, argv string, whole int) record {
		return record{head{kind: kindExec, pid: pid, time: time}, &execRecord{argv: []byte(argv), argvSize: whole}}
	}
	chunk := func(pid uint32, time uint64, offset int, data string) record {
		return record{head{kind: kindArgv, pid: pid, time: time}, &argvRecord{offset, []byte(data)}}
	}
	for _, test := range []struct {
		name    string
		records []record
		argv    []string
		partial bool
	}{
		{"whole", []record{exec(1, 5, "ab", 2)}, []string{"ab"}, false},
		{"chunks", []record{exec(1, 5, "ab", 5), chunk(1, 5, 2, "cd"), chunk(1, 5, 4, "e")}, []string{"abcde"}, false},
		{"a chunk is missing", []record{exec(1, 5, "ab", 5), chunk(1, 5, 4, "e")}, []string{"ab"}, true},
		{"two at once", []record{exec(1, 5, "ab", 3), exec(2, 5, "xy", 3), chunk(2, 5, 2, "z"), chunk(1, 5, 2, "c")}, []string{"abc", "xyz"}, false},
		{"of another exec", []record{exec(1, 5, "ab", 3), chunk(1, 6, 2, "c")}, []string{"ab"}, true},
		{"exec lost", []record{chunk(1, 5, 0, "c")}, nil, false},
		{"could not be read", []record{exec(1, 5, "", 3)}, []string{""}, false},
	} {
		var argv []string
		var left bool
		for _, r := range join(test.records) {
			argv = append(argv, string(r.body.(*execRecord).argv))
			left = left || partial(r)
		}
		if !slices.Equal(argv, test.argv) || left != test.partial {
			t.Errorf("%s: %q, partial %v; want %q, %v", test.name, argv, left, test.argv, test.partial)
		}
	}
}

func TestProcID(t *testing.T) {
	seen := map[string]bool{}
	for _, boot := range []string{"a", "b"} {
		for _, run := range []string{"", "a", "b"} {
			for _, pid := range []int{1, 12} {
				for _, start := range []uint64{1, 2, 21} {
					seen[ProcID(boot, run, pid, start)] = true
				}
			}
		}
	}
	if len(seen) != 36 {
		t.Errorf("%d ids of 36 processes", len(seen))
	}
	if got := ProcID("a", "b", 1, 2); got != "2ef1e66b9e4c6e7034f5bc2a9cf84d33" {
		t.Errorf("the id of a known process became %s: ids of records that exist must not change", got)
	}
}

func TestSettle(t *testing.T) {
	c := &collector{young: []record{
		{head{time: 30}, &flowRecord{}}, {head{time: 10}, &flowRecord{}}, {head{time: 50}, &flowRecord{}},
		{head{time: 20, pid: 1}, &execRecord{argv: []byte("a"), argvSize: 3}},
	}}
	times := func(records []record) (out []uint64) {
		for _, r := range records {
			out = append(out, r.time)
		}
		return out
	}
	if got := times(c.settle(40)); !slices.Equal(got, []uint64{10}) {
		t.Errorf("first cycle: %v; the exec at 20 is not complete yet", got)
	}
	c.young = append(c.young, record{head{time: 20, pid: 1}, &argvRecord{1, []byte("bc")}})
	old := c.settle(40)
	if got := times(old); !slices.Equal(got, []uint64{20, 30}) || string(old[0].body.(*execRecord).argv) != "abc" {
		t.Errorf("second cycle: %v, %+v", got, old[0].body)
	}
	if got := times(c.settle(60)); !slices.Equal(got, []uint64{50}) {
		t.Errorf("third cycle: %v", got)
	}
}
