package commands

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzExtract: whatever a sandbox sends, nothing is written outside of the target, no part of a file is left in it, and no more than is allowed.
func FuzzExtract(f *testing.F) {
	for _, headers := range [][]tar.Header{
		{dir("d"), file("d/f"), link("d/up", "../f")}, {link("l", ".."), file("l/victim")}, {file("../x"), {Typeflag: tar.TypeLink, Name: "y", Linkname: "/etc/passwd"}},
	} {
		var b bytes.Buffer
		archived(headers...)(&b)
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		at := t.TempDir()
		target := filepath.Join(at, "target")
		if err := os.WriteFile(filepath.Join(at, "victim"), []byte("safe"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(target, 0o700); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(target)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		const most = 1 << 16
		x := &extractor{copier: &copier{Env: &Env{Say: func(string) {}}}, root: root, from: "/d", left: most}
		_ = x.extract(bytes.NewReader(archive))
		victim, err := os.ReadFile(filepath.Join(at, "victim"))
		if list, listed := os.ReadDir(at); err != nil || listed != nil || len(list) != 2 || string(victim) != "safe" {
			t.Fatalf("outside of the target there are %v, %q", list, victim)
		}
		var size int64
		filepath.WalkDir(target, func(name string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if strings.HasPrefix(d.Name(), ".custody-") && !bytes.Contains(archive, []byte(".custody-")) {
				t.Fatalf("%s is left", name)
			}
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
				size += info.Size()
			}
			return nil
		})
		if size > most {
			t.Fatalf("%d bytes were extracted", size)
		}
	})
}
