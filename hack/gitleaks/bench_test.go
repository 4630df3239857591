package gitleaks

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/zricethezav/gitleaks/v8/detect"
	"golang.org/x/sys/unix"
)

const size = 1 << 20

type input struct {
	name string
	text []byte
}

// inputs are typical outputs of an agent's commands, one MiB each.
func inputs(b *testing.B) []input {
	return []input{{"build", build()}, {"git", gitLog(b)}, {"source", source(b)}}
}

// build is the output of build tools.
func build() []byte {
	var out bytes.Buffer
	rng := rand.New(rand.NewPCG(2, 2))
	for out.Len() < size {
		fmt.Fprintf(&out, "[%d/%d] Collecting package-%x (from -r requirements.txt)\n  Downloading https://files.example.org/%x/wheel-%d.%d.whl (%d kB)\n",
			rng.IntN(99), 99, rng.Uint32(), rng.Uint64(), rng.IntN(9), rng.IntN(99), rng.IntN(9999))
	}
	return out.Bytes()[:size]
}

// gitLog is this repository's history, as far as there is one.
func gitLog(b *testing.B) []byte {
	out, err := exec.Command("git", "log", "--stat", "-p", "-n", "200").Output()
	if err != nil {
		b.Skipf("git log: %v", err)
	}
	return repeated(out)
}

// source is this repository's Go.
func source(b *testing.B) []byte {
	var all []byte
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || len(all) > size {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, text...)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return repeated(all)
}

func repeated(text []byte) []byte {
	for len(text) < size {
		text = append(text, text...)
	}
	return text[:size]
}

// piece is the size of a read from a stream. gitleaks itself reads files in pieces of 100 kB.
const piece = 32 << 10

// BenchmarkDetect passes the same text in the same pieces to both. It also reports
// megabytes for each second of CPU time, which depends less on the machine's load.
func BenchmarkDetect(b *testing.B) {
	ours, theirs := pair(b)
	for _, in := range inputs(b) {
		b.Run(in.name+"/custody", func(b *testing.B) {
			each(b, in.text, func(p []byte) int { return len(ours.Find(nil, p)) })
		})
		b.Run(in.name+"/gitleaks", func(b *testing.B) {
			each(b, in.text, func(p []byte) int { return len(theirs.Detect(detect.Fragment{Raw: string(p)})) })
		})
	}
}

func each(b *testing.B, text []byte, find func([]byte) int) {
	b.SetBytes(int64(len(text)))
	found, began := 0, cpu(b)
	for b.Loop() {
		found = 0
		for i := 0; i < len(text); i += piece {
			found += find(text[i : i+piece])
		}
	}
	b.ReportMetric(float64(len(text))*float64(b.N)/1e6/(cpu(b)-began).Seconds(), "MB/cpu-s")
	b.ReportMetric(float64(found), "found")
}

func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
