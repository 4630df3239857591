package proof_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// slowRoot is RFC 6962's definition of the root over leaves' data, as docs/verify.md has it.
func slowRoot(data [][]byte) [32]byte {
	switch n := len(data); {
	case n == 0:
		return sha256.Sum256(nil)
	case n == 1:
		return sha256.Sum256(append([]byte{0}, data[0]...))
	default:
		k := 1
		for 2*k < n {
			k *= 2
		}
		left, right := slowRoot(data[:k]), slowRoot(data[k:])
		return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
	}
}

// TestCopyTree compares the tree with the definition.
func TestCopyTree(t *testing.T) {
	var tree merkle.CopyTree
	var data [][]byte
	for n := range 20 {
		if got, want := tree.Root(), slowRoot(data); got != want {
			t.Fatalf("%d files: root %s, want %x", len(data), got, want)
		}
		c := audit.Copy{Salt: fmt.Sprintf("%032x", n)}
		for i := range n % 4 {
			f := audit.CopiedFile{Path: audit.Text(fmt.Sprint("p\xff", n, i)), As: "as", Mode: "0644", Size: int64(n), SHA256: "ab", Link: "to"}
			c.Files = append(c.Files, f)
			salt, _ := hex.DecodeString(c.Salt)
			data = append(data, append(salt, strings.Join([]string{string(f.Path), "as", "0644", fmt.Sprint(n), "ab", "to"}, "\x00")...))
		}
		check(t, tree.Add(&c))
	}
	for _, salt := range []string{"", "00", strings.Repeat("g", 32), strings.Repeat("0", 34)} {
		if err := tree.Add(&audit.Copy{Salt: salt}); err == nil {
			t.Errorf("the salt %q is taken", salt)
		}
	}
}

// told returns the records of a copy of three files, in lists of two and one, and its end.
func told(change func(lists []*audit.Copy, end *audit.Copy)) (records []string) {
	file := func(name string) audit.CopiedFile {
		return audit.CopiedFile{Path: audit.Text(name), Mode: "0644", Size: 5, SHA256: strings.Repeat("ab", 32)}
	}
	lists := []*audit.Copy{
		{Direction: "out", Op: audit.CopyList, Salt: strings.Repeat("01", 16), Files: []audit.CopiedFile{file("a"), file("b")}},
		{Direction: "out", Op: audit.CopyList, First: 2, Salt: strings.Repeat("02", 16), Files: []audit.CopiedFile{file("c\xff")}},
	}
	var tree merkle.CopyTree
	for _, l := range lists {
		if err := tree.Add(l); err != nil {
			panic(err)
		}
	}
	end := &audit.Copy{Direction: "out", Op: audit.CopyEnd, Dir: "/out", Count: tree.Count(), Bytes: tree.Bytes(), Root: tree.Root().String()}
	change(lists, end)
	for i, c := range append(lists, end) {
		text, err := json.Marshal(c)
		if err != nil {
			panic(err)
		}
		records = append(records, fmt.Sprintf(`{"v":1,"run":"r-craft","seq":%d,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"copy","copy":%s}`, i+1, text))
	}
	return records
}

// TestCopies: Verify detects copies that differ from their lists, even if the host signed them.
func TestCopies(t *testing.T) {
	k := newKey(t)
	type change = func(lists []*audit.Copy, end *audit.Copy)
	for name, c := range map[string]struct {
		change change
		seq    uint64 // 0: it verifies
	}{
		"fine":                 {func([]*audit.Copy, *audit.Copy) {}, 0},
		"another path":         {func(l []*audit.Copy, _ *audit.Copy) { l[0].Files[1].Path = "x" }, 3},
		"another name":         {func(l []*audit.Copy, _ *audit.Copy) { l[0].Files[1].As = "x" }, 3},
		"another digest":       {func(l []*audit.Copy, _ *audit.Copy) { l[1].Files[0].SHA256 = strings.Repeat("ac", 32) }, 3},
		"another mode":         {func(l []*audit.Copy, _ *audit.Copy) { l[1].Files[0].Mode = "0755" }, 3},
		"another salt":         {func(l []*audit.Copy, _ *audit.Copy) { l[1].Salt = strings.Repeat("03", 16) }, 3},
		"no salt":              {func(l []*audit.Copy, _ *audit.Copy) { l[1].Salt = "" }, 2},
		"another order":        {func(l []*audit.Copy, _ *audit.Copy) { f := l[0].Files; f[0], f[1] = f[1], f[0] }, 3},
		"one file less":        {func(l []*audit.Copy, _ *audit.Copy) { l[0].Files = l[0].Files[:1] }, 2},
		"another place":        {func(l []*audit.Copy, _ *audit.Copy) { l[1].First = 3 }, 2},
		"other direction":      {func(l []*audit.Copy, _ *audit.Copy) { l[1].Direction = "in" }, 2},
		"another count":        {func(_ []*audit.Copy, e *audit.Copy) { e.Count = 2 }, 3},
		"another size":         {func(_ []*audit.Copy, e *audit.Copy) { e.Bytes = 14 }, 3},
		"another root":         {func(_ []*audit.Copy, e *audit.Copy) { e.Root = strings.Repeat("00", 32) }, 3},
		"an end in upper case": {func(_ []*audit.Copy, e *audit.Copy) { e.Root = strings.ToUpper(e.Root) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := verifyDir(t, craft(t, k, func(*wal.Segment) {}, told(c.change)...), k.trusted)
			if c.seq > 0 {
				wants(t, err, verdict.ErrDoesNotHold, verdict.ErrCopied, c.seq)
				return
			}
			check(t, err)
			if len(r.Copies) != 1 || !r.Copies[0].Listed || r.Copies[0].Count != 3 || r.Copies[0].Bytes != 15 || r.Copies[0].Direction != "out" {
				t.Errorf("copies: %+v", r.Copies)
			}
		})
	}
	t.Run("no end", func(t *testing.T) {
		r, err := verifyDir(t, craft(t, k, func(*wal.Segment) {}, told(func([]*audit.Copy, *audit.Copy) {})[:2]...), k.trusted)
		check(t, err)
		if len(r.Copies) != 0 {
			t.Errorf("copies: %+v", r.Copies)
		}
	})
	// A declared hole can contain a list.
	t.Run("a lost list", func(t *testing.T) {
		records := told(func([]*audit.Copy, *audit.Copy) {})
		records[1] = `{"v":1,"run":"r-craft","seq":4,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"gap","gap":{"stage":"wal","first":2,"last":2,"count":1,"cause":"full"}}`
		records[1], records[2] = records[2], records[1]
		dir := craft(t, k, func(s *wal.Segment) { s.Last, s.Losses = 4, wal.Losses{"wal": {Gaps: 1, Events: 1}} }, records...)
		r, err := verifyDir(t, dir, k.trusted)
		check(t, err)
		if len(r.Copies) != 1 || r.Copies[0].Listed {
			t.Errorf("copies: %+v", r.Copies)
		}
	})
}
