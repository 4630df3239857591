package audit

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"
)

// FuzzAppendJSON compares AppendJSON with encoding/json.
func FuzzAppendJSON(f *testing.F) {
	f.Add(uint8(0), "step", "proc", "/bin/true\x00a b\x00", int64(1), int64(0), true, int64(1795215444722398033))
	f.Add(uint8(1), "", "p", "", int64(137), int64(9), false, int64(0))
	f.Add(uint8(2), "s", "", "/w/\xff\x00</x>\x00\"y\"", int64(-3), int64(7), true, int64(-62135596800000000))
	f.Add(uint8(3), "", "", "", int64(0), int64(0), false, int64(math.MaxInt64))
	f.Add(uint8(5), "step", "stdout", "a line\nand\ttabs\r\n \x00\x1b[1m\x7f \"quoted\" \\ <b>&\b\f", int64(5), int64(0), false, int64(1))
	f.Add(uint8(5), "a<b", "tty", "ä", int64(5), int64(0), true, int64(1))
	f.Add(uint8(4), "\u2028", "ä", "\\\x00\x7f\x00\t", int64(5), int64(6), true, int64(1))
	f.Fuzz(func(t *testing.T, kind uint8, step, proc, texts string, n, m int64, yes bool, at int64) {
		parts := bytes.Split([]byte(texts), []byte{0})
		text := func(i int) Text { return Text(parts[i%len(parts)]) }
		e := Event{Time: time.Unix(0, at).UTC(), Observer: Guest, Kind: Kind(proc), Step: step}
		if yes {
			e.Guest = &GuestTime{Time: time.Unix(n, m).UTC(), OffsetNS: m}
		}
		switch kind % 6 {
		case 0:
			e.Exec = &Exec{Proc: proc, Parent: step, PID: int(n), PPID: int(m), Exe: text(0), Cwd: text(1), UID: int(n), Truncated: yes, ArgvBytes: int(m), ArgvSHA256: proc, LLM: step, ToolCall: text(2)}
			for _, p := range parts {
				e.Exec.Argv = append(e.Exec.Argv, Text(p))
			}
		case 1:
			e.Exit = &Exit{Proc: proc, PID: int(n), Code: int(m), Signal: int(n), DurationNS: m, Synthetic: yes}
		case 2:
			e.File = &File{Proc: proc, PID: int(n), Parent: step, Op: FileOp(step), Path: text(0), To: text(1), Source: text(2), Device: proc, Inode: step, Size: m, SHA256: proc, Unhashed: step}
		case 3:
			e.Exec = &Exec{} // no argv: null
			e.Gap = &Gap{Stage: Stage(step), Count: uint64(n)}
		case 4:
			e.Flow = &Flow{Proc: proc, Errno: int(n)}
		case 5:
			e.Output = &Output{Stream: proc, Offset: n, Text: Text(texts)}
		}
		want, err := json.Marshal(&e)
		got, gotErr := e.AppendJSON([]byte("before"))
		if (err == nil) != (gotErr == nil) || err == nil && string(got) != "before"+string(want) {
			t.Errorf("got  %s, %v\nwant before%s, %v", got, gotErr, want, err)
		}
		var unescaped bytes.Buffer
		enc := json.NewEncoder(&unescaped)
		enc.SetEscapeHTML(false)
		if plain, ok := e.AppendPlain(nil); ok && (enc.Encode(&e) != nil || string(plain)+"\n" != unescaped.String()) {
			t.Errorf("plain %s\nwant  %s", plain, unescaped.String())
		}
	})
}

func BenchmarkAppendJSON(b *testing.B) {
	e := Event{Time: time.Now().UTC(), Observer: Guest, Kind: KindFile, Step: "main", Guest: &GuestTime{Time: time.Now().UTC()},
		File: &File{Proc: "5987210b927949e7fbf9194515cb6308", PID: 115, Op: FileWrite, Path: "/workspace/n.txt", Device: "0:26", Inode: "4611686018427387947",
			Size: 588895, SHA256: "b2bc7d3f8b652d2ec96865b68ad8f80e22cca174abe1aed7889e242a747d590f"}}
	b.Run("AppendJSON", func(b *testing.B) {
		buf := make([]byte, 0, 1<<10)
		for b.Loop() {
			if _, err := e.AppendJSON(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(&e); err != nil {
				b.Fatal(err)
			}
		}
	})
}
