package gitleaks

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/zricethezav/gitleaks/v8/detect"
)

const size = 1 << 20

// inputs are texts as an agent's commands print them, a mebibyte each.
func inputs(b *testing.B) map[string][]byte {
	return map[string][]byte{"build": build(), "git": gitLog(b), "source": source(b)}
}

// build is what build tools print.
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

// BenchmarkDetect gives both the same text in the pieces of 32 KiB in which a
// stream arrives; gitleaks' own sources cut files into pieces of 100 kB.
func BenchmarkDetect(b *testing.B) {
	ours, theirs := pair(b)
	for name, text := range inputs(b) {
		b.Run(name+"/custody", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for i := 0; i < len(text); i += 32 << 10 {
					ours.Find(nil, text[i:i+32<<10])
				}
			}
		})
		b.Run(name+"/gitleaks", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for i := 0; i < len(text); i += 32 << 10 {
					theirs.Detect(detect.Fragment{Raw: string(text[i : i+32<<10])})
				}
			}
		})
	}
}
