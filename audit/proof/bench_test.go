package proof_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

// busyRun writes a run of n records like those of an agent.
func busyRun(b *testing.B, k key, n int) (dir string, size int64) {
	b.Helper()
	dir = filepath.Join(b.TempDir(), "r-busy")
	l, err := wal.Create(dir, wal.Options{Run: "r-busy", Sealer: statement.NewSealer(k.signer, facts), SegmentAge: time.Hour, BufferBytes: 64 << 20})
	check(b, err)
	for i := range n {
		ev := audit.Event{Time: time.Now().UTC(), Observer: audit.Guest, Step: "agent"}
		proc := "5c1b8a7e-r-busy-" + strconv.Itoa(i%500) + "-1700000000"
		switch i % 4 {
		case 0:
			ev.Kind, ev.Exec = audit.KindExec, &audit.Exec{Proc: proc, PID: i, PPID: 1, Exe: "/usr/bin/python3", Argv: []audit.Text{"python3", "-m", "pip", "install", "requests"}, Cwd: "/work"}
		case 1:
			ev.Kind, ev.File = audit.KindFile, &audit.File{Proc: proc, PID: i, Op: audit.FileWrite, Path: "/workspace/lib/python3/site-packages/requests/adapters.py", Size: int64(i), SHA256: strings.Repeat("ab", 32)}
		case 2:
			ev.Kind, ev.Flow = audit.KindFlow, &audit.Flow{ID: "f-" + strconv.Itoa(i), State: audit.FlowOpen, Proto: "tcp", DstIP: "198.18.0.7", DstPort: 443, Name: "pypi.org", Verdict: audit.Allow, Rule: "pypi.org tcp/443"}
		case 3:
			ev.Kind, ev.Output = audit.KindOutput, &audit.Output{Stream: "stdout", Offset: int64(i) * 80, Text: audit.Text("Collecting requests, downloading it\nfrom somewhere <else> " + strconv.Itoa(i) + "\n")}
		}
		s, err := red.Seal(&ev)
		check(b, err)
		_, err = l.Append(context.Background(), s)
		check(b, err)
	}
	check(b, l.Close(context.Background(), wal.Sealed))
	for _, path := range append(glob(b, dir, ".seg"), glob(b, dir, ".leaves")...) {
		info, err := os.Stat(path)
		check(b, err)
		size += info.Size()
	}
	return dir, size
}

// BenchmarkVerify compares Verify of a directory and of a bundle with sha256sum of the same bytes.
func BenchmarkVerify(b *testing.B) {
	k := newKey(b)
	const records = 400_000
	dir, size := busyRun(b, k, records)
	l := &treeLog{signer: k.signer}
	l.log(b, dir)
	l.publish(b)
	trust := proof.Trust{Keys: k.trusted}
	judge := func(b *testing.B, open func() (*proof.Evidence, error)) {
		e, err := open()
		check(b, err)
		defer e.Close()
		e.Log = nil
		r, err := proof.Verify(context.Background(), e, trust)
		check(b, err)
		if r.Records != records {
			b.Fatal(r.Records)
		}
	}
	b.Run("sha256sum", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			c := exec.Command("sha256sum", append(glob(b, dir, ".seg"), glob(b, dir, ".leaves")...)...)
			c.Stdout = io.Discard
			check(b, c.Run())
		}
	})
	b.Run("directory", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			judge(b, func() (*proof.Evidence, error) { return proof.OpenDir(dir) })
		}
		b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
	var data bytes.Buffer
	check(b, proof.WriteBundle(context.Background(), &data, dir, proof.BundleOptions{HostKey: k.public, Signer: k.signer, Log: l}))
	path := filepath.Join(b.TempDir(), "bundle")
	check(b, os.WriteFile(path, data.Bytes(), 0o600))
	b.Run("bundle", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			judge(b, func() (*proof.Evidence, error) { return proof.OpenBundle(path) })
		}
	})
}
