package state_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/custody-project/custody/state"
)

const imageSize = 512 << 20

// benchImages makes the memory of a template, of which 70 % is zeros, and that of a sandbox, in which 10 % of the pages have changed. Half of a changed page is
// random bytes, as a middle between text and pointers, and what was compressed or encrypted.
func benchImages(b *testing.B) (memory, base *os.File) {
	r := rand.New(rand.NewPCG(5, 6))
	files := [2]*os.File{}
	for i, name := range []string{"base", "memory"} {
		f, err := os.Create(filepath.Join(b.TempDir(), name))
		must(b, err)
		b.Cleanup(func() { f.Close() })
		must(b, f.Truncate(imageSize))
		files[i] = f
	}
	content := make([]byte, page)
	for at := int64(0); at < imageSize; at += page {
		inBase, changed := at < imageSize*3/10, r.IntN(10) == 0
		if inBase {
			randomize(r, content[:page/2])
			_, err := files[0].WriteAt(content, at)
			must(b, err)
		}
		if changed {
			randomize(r, content[:page/2])
		}
		if inBase || changed {
			_, err := files[1].WriteAt(content, at)
			must(b, err)
		}
	}
	must(b, files[0].Sync())
	must(b, files[1].Sync())
	return files[1], files[0]
}

func pause(b *testing.B, s *state.Store, memory, base *os.File) state.Info {
	w, err := s.Create(b.Context(), state.Meta{Binding: binding})
	must(b, err)
	must(b, w.File(b.Context(), "memory", memory, base))
	info, err := w.Commit(b.Context())
	must(b, err)
	return info
}

// BenchmarkPause writes the snapshot of a memory of 512 MiB with 10 % changed pages.
func BenchmarkPause(b *testing.B) {
	memory, base := benchImages(b)
	s := newPlace(b).open(b)
	for b.Loop() {
		info := pause(b, s, memory, base)
		b.ReportMetric(float64(info.Size)/(1<<20), "MiB")
	}
}

// BenchmarkResume restores it into a memfd.
func BenchmarkResume(b *testing.B) {
	memory, base := benchImages(b)
	s := newPlace(b).open(b)
	pause(b, s, memory, base)
	for b.Loop() {
		snap, err := s.Claim(b.Context(), binding)
		must(b, err)
		to := memfd(b)
		must(b, snap.File(b.Context(), "memory", to, base))
		must(b, to.Close())
		must(b, snap.Release())
	}
}

// BenchmarkCopy is the reference: it copies the memory to a file as cp does, and makes it durable.
func BenchmarkCopy(b *testing.B) {
	memory, _ := benchImages(b)
	path := filepath.Join(b.TempDir(), "copy")
	for b.Loop() {
		to, err := os.Create(path)
		must(b, err)
		_, err = io.Copy(to, io.NewSectionReader(memory, 0, imageSize))
		must(b, err)
		must(b, to.Sync())
		must(b, to.Close())
		must(b, os.Remove(path))
	}
}

// BenchmarkCopyToMemory is the reference of BenchmarkResume.
func BenchmarkCopyToMemory(b *testing.B) {
	memory, _ := benchImages(b)
	for b.Loop() {
		to := memfd(b)
		_, err := io.Copy(to, io.NewSectionReader(memory, 0, imageSize))
		must(b, err)
		must(b, to.Close())
	}
}

// BenchmarkList10000 lists 10,000 paused sandboxes, and BenchmarkSweep10000 sweeps them when none has expired.
func BenchmarkList10000(b *testing.B) {
	s, _ := many(b)
	for b.Loop() {
		list, err := s.List(b.Context(), "acme")
		if err != nil || len(list) != 10000 {
			b.Fatalf("%d snapshots, %v", len(list), err)
		}
	}
}

func BenchmarkSweep10000(b *testing.B) {
	s, _ := many(b)
	for b.Loop() {
		must(b, s.Sweep(b.Context()))
	}
}

// BenchmarkStat10000 is the reference: it lists the directory, and asks for the size of each file.
func BenchmarkStat10000(b *testing.B) {
	_, p := many(b)
	for b.Loop() {
		entries, err := os.ReadDir(p.dir)
		must(b, err)
		for _, e := range entries {
			_, err := e.Info()
			must(b, err)
		}
	}
}

// BenchmarkSweepExpired sweeps 10,000 paused sandboxes, of which 100 have expired, and makes those again.
func BenchmarkSweepExpired(b *testing.B) {
	s, p := many(b)
	text, err := os.ReadFile(filepath.Join(p.dir, "r-00000.snapshot"))
	must(b, err)
	old := bytes.ReplaceAll(text, []byte(`"expires":"2026`), []byte(`"expires":"2025`))
	for b.Loop() {
		b.StopTimer()
		for i := range 100 {
			run := fmt.Sprintf("r-%05d", i*100)
			must(b, os.WriteFile(filepath.Join(p.dir, run+".snapshot"), bytes.Replace(old, []byte("r-00000"), []byte(run), 1), 0o600))
		}
		b.StartTimer()
		must(b, s.Sweep(b.Context()))
	}
	b.StopTimer()
	if list, err := s.List(b.Context(), "acme"); err != nil || len(list) != 9900 {
		b.Errorf("%d are left, %v", len(list), err)
	}
}

// BenchmarkExport exports the memory of BenchmarkPause, with the pages of its base, and BenchmarkImport imports it on another host.
func BenchmarkExport(b *testing.B) {
	s, k, base := exportable(b)
	for b.Loop() {
		b.ReportMetric(float64(exportTo(b, s, k, base, io.Discard).Size)/(1<<20), "MiB")
	}
}

func BenchmarkImport(b *testing.B) {
	s, k, base := exportable(b)
	var content bytes.Buffer
	exportTo(b, s, k, base, &content)
	other := newPlace(b).open(b)
	for b.Loop() {
		_, err := other.Import(b.Context(), bytes.NewReader(content.Bytes()), int64(content.Len()), archived(), k, binding.Host)
		must(b, err)
	}
}

func exportable(b *testing.B) (*state.Store, state.SharedKeyFile, *os.File) {
	memory, base := benchImages(b)
	s := newPlace(b).open(b)
	pause(b, s, memory, base)
	return s, shared(b), base
}

func exportTo(b *testing.B, s *state.Store, k state.Wrapper, base *os.File, w io.Writer) state.Info {
	snap, err := s.Claim(b.Context(), binding)
	must(b, err)
	info, err := snap.Export(b.Context(), w, state.Elsewhere{Host: "archive", Keys: k}, map[string]*os.File{"memory": base})
	must(b, err)
	must(b, snap.Release())
	return info
}

// many makes a store of 10,000 snapshots. Their files are copies with another run in the manifest, which List does not authenticate.
func many(b *testing.B) (*state.Store, *place) {
	p := newPlace(b)
	p.config.Budget = 1 << 40
	s := p.open(b)
	put(b, s, of("r-00000"), "text")
	text, err := os.ReadFile(filepath.Join(p.dir, "r-00000.snapshot"))
	must(b, err)
	for i := 1; i < 10000; i++ {
		run := fmt.Sprintf("r-%05d", i)
		must(b, os.WriteFile(filepath.Join(p.dir, run+".snapshot"), bytes.Replace(text, []byte("r-00000"), []byte(run), 1), 0o600))
	}
	return s, p
}
