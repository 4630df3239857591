package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
)

// FuzzManifest: a manifest that is accepted has one encoding, and valid values.
func FuzzManifest(f *testing.F) {
	m, err := newManifest(Meta{Binding: Binding{Run: "r-1", Tenant: "acme", Project: "<ü>", Template: "sha256:t", Tier: "gvisor"}}, time.Unix(1767323045, 123456789))
	if err != nil {
		f.Fatal(err)
	}
	head, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(head)
	f.Add([]byte(magic + "{}\n"))
	f.Add([]byte(magic + `{"run":"r-1","run":"r-2"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, n, err := parseManifest(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil || !bytes.Equal(again, b[:n]) || m.check() != nil {
			t.Errorf("%q is accepted, and encoded as %q, %v", b[:n], again, err)
		}
	})
}

// FuzzIndex: the chunks of an index that is accepted are inside of the file and have bounded sizes.
func FuzzIndex(f *testing.F) {
	x := index{Parts: []*part{{Name: "memory", Size: 1 << 20, Pages: true, Chunks: []chunk{{0, 100, 5000}, {100, 50, 50}}}, {Name: "device", Size: 7, Chunks: []chunk{{150, 7, 7}}}}}
	text, err := json.Marshal(x)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, int64(157))
	f.Add([]byte(`{"parts":[null]}`), int64(0))
	f.Add([]byte(`{"parts":[{"name":"a","size":-1}]}`), int64(0))
	f.Add([]byte(`{"parts":[{"name":"a","size":9,"chunks":[{"at":9223372036854775807,"stored":9,"plain":9}]}]}`), int64(9))
	f.Fuzz(func(t *testing.T, text []byte, end int64) {
		x, err := parseIndex(text, max(end, 0))
		if err != nil {
			return
		}
		for _, p := range x.Parts {
			for _, c := range p.Chunks {
				if c.At < 0 || c.Stored < 1 || c.At+int64(c.Stored) > end || c.Plain > maxChunk || c.Stored > c.Plain {
					t.Errorf("chunk %+v of part %s is accepted in %d bytes", c, p.Name, end)
				}
			}
		}
	})
}

// FuzzRuns: the runs of a chunk that is accepted are inside of the file and have all the data.
func FuzzRuns(f *testing.F) {
	f.Add(encodeRuns(nil, []run{{1, 2, false}, {7, 1, true}}, make([]byte, 2*PageSize)), uint16(8))
	f.Add(encodeRuns(nil, []run{{0, 1 << 62, true}}, nil), uint16(8))
	f.Add(binary.AppendUvarint(nil, 1<<63), uint16(8))
	f.Fuzz(func(t *testing.T, b []byte, pages uint16) {
		runs, data, err := decodeRuns(b, int64(pages)*PageSize)
		if err != nil {
			return
		}
		need := uint64(0)
		for _, r := range runs {
			if r.n == 0 || r.n > uint64(pages) || r.first+r.n > uint64(pages) {
				t.Errorf("run %+v is accepted in %d pages", r, pages)
			}
			if !r.zero {
				need += r.n * PageSize
			}
		}
		if need != uint64(len(data)) {
			t.Errorf("the runs have %d bytes, and the data %d", need, len(data))
		}
	})
}

// FuzzFile opens files whose header and encrypted contents were made of arbitrary bytes. With contents of the right key the parsers are reached.
func FuzzFile(f *testing.F) {
	home := f.TempDir()
	key := KeyFile(filepath.Join(home, "key"))
	s, err := Open(filepath.Join(home, "paused"), Config{Keys: key})
	if err != nil {
		f.Fatal(err)
	}
	m := Meta{Binding: Binding{Run: "r-1"}}
	w, err := s.Create(f.Context(), m)
	if err != nil {
		f.Fatal(err)
	}
	if err := w.Part("device", bytes.NewReader(make([]byte, 5000))); err != nil {
		f.Fatal(err)
	}
	if _, err := w.Commit(f.Context()); err != nil {
		f.Fatal(err)
	}
	valid, err := os.ReadFile(s.path("r-1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid, false)
	head := valid[:bytes.Index(valid, []byte("age-encryption"))]
	f.Add([]byte(`{"parts":[]}`+"\x00\x00\x00\x00\x00\x00\x00\x00"), true)
	end := binary.BigEndian.AppendUint64([]byte("\x01\x00\x03"+`{"parts":[{"name":"m","size":4096,"pages":true,"chunks":[{"at":0,"stored":3,"plain":3}]}]}`), 3)
	f.Add(end, true)
	f.Fuzz(func(t *testing.T, b []byte, inside bool) {
		if inside {
			var file bytes.Buffer
			file.Write(head)
			w, err := age.Encrypt(&file, seal{t.Context(), key, sha256.Sum256(head)})
			if err != nil {
				t.Fatal(err)
			}
			w.Write(b)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			b = file.Bytes()
		}
		if err := os.WriteFile(s.path("r-1"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		snap, err := s.Claim(t.Context(), m.Binding)
		if err != nil {
			return
		}
		defer snap.Release()
		for _, p := range snap.index.Parts {
			if p.Pages {
				snap.Pages(t.Context(), p.Name, func(at, n int64, data []byte) error {
					if at < 0 || n <= 0 || at+n > p.Size || data != nil && int64(len(data)) != n {
						t.Errorf("%d bytes at %d, %d of data", n, at, len(data))
					}
					return nil
				})
				continue
			}
			r, n, err := snap.Part(p.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := new(bytes.Buffer).ReadFrom(r); err == nil && got != n {
				t.Errorf("part %s has %d bytes instead of %d", p.Name, got, n)
			}
		}
	})
}

// FuzzImport imports files whose header and encrypted contents were made of arbitrary bytes. What is accepted can be read, and of what is refused nothing is left.
func FuzzImport(f *testing.F) {
	home := f.TempDir()
	key := SharedKeyFile(filepath.Join(home, "key"))
	if err := key.Create(); err != nil {
		f.Fatal(err)
	}
	s, err := Open(filepath.Join(home, "paused"), Config{Keys: KeyFile(filepath.Join(home, "host.key"))})
	if err != nil {
		f.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	m := manifest{Binding: Binding{Run: "r-1", Host: "archive", Base: NoBase}, Created: now, Expires: now.AddDate(1, 0, 0)}
	seal := func(t testing.TB, plain []byte) []byte {
		var file bytes.Buffer
		e, err := newEncoder(t.Context(), &file, m, key)
		if err != nil {
			t.Fatal(err)
		}
		e.age.Write(plain)
		if err := e.age.Close(); err != nil {
			t.Fatal(err)
		}
		return file.Bytes()
	}
	index := []byte(`{"parts":[{"name":"m","size":4096,"pages":true,"chunks":[{"at":0,"stored":3,"plain":3}]},{"name":"d","size":2,"chunks":[{"at":3,"stored":2,"plain":2}]}]}`)
	valid := binary.BigEndian.AppendUint64(append([]byte("\x01\x00\x03ab"), index...), 5)
	f.Add(seal(f, valid), false)
	f.Add(valid, true)
	f.Add(bytes.Replace(valid, []byte("\x01\x00\x03"), []byte("\x01\x01\x03"), 1), true) // a page behind the end
	f.Fuzz(func(t *testing.T, b []byte, inside bool) {
		if inside {
			b = seal(t, b)
		}
		want := m.Binding
		_, err := s.Import(t.Context(), bytes.NewReader(b), int64(len(b)), want, key, "host-1")
		want.Host = "host-1"
		if err == nil {
			snap, err := s.Claim(t.Context(), want)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range snap.index.Parts {
				if p.Pages {
					err = snap.Pages(t.Context(), p.Name, func(int64, int64, []byte) error { return nil })
				} else if r, n, partErr := snap.Part(p.Name); partErr == nil {
					var got int64
					if got, err = new(bytes.Buffer).ReadFrom(r); err == nil && got != n {
						t.Errorf("part %s has %d bytes instead of %d", p.Name, got, n)
					}
				}
				if err != nil {
					t.Errorf("part %s was accepted, and cannot be read: %v", p.Name, err)
				}
			}
			if err := snap.Consume(); err != nil {
				t.Fatal(err)
			}
		}
		if entries, err := os.ReadDir(string(s.files)); err != nil || len(entries) > 1 { // the lock
			t.Errorf("there are %d files, %v", len(entries), err)
		}
	})
}
