package wire

import (
	"strconv"
	"strings"
)

// Cut is a place where text was cut.
type Cut struct {
	Path  string // as in file.path
	Bytes int    // of the complete text; 0 for a number that was clamped
}

// Raw is a text that is not UTF-8.
type Raw struct {
	Path  string
	Bytes string // as far as it was written
}

// Notes are the places where texts were cut or were not UTF-8.
type Notes struct {
	Cuts []Cut
	Raws []Raw
	// Quiet is set while texts are repeated: repetitions are not noted.
	Quiet bool
	path  [12]string
	deep  int
}

// enter begins a member of the open object: its key becomes part of the path of places in it.
func (n *Notes) enter(key string) {
	if n.deep < len(n.path) {
		n.path[n.deep] = key
	}
	n.deep++
}

func (n *Notes) leave() { n.deep-- }

// where returns the path of a member.
func (n *Notes) where(key string) string {
	var b strings.Builder
	for _, p := range append(n.path[:min(n.deep, len(n.path)):len(n.path)], key) {
		if p == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(p)
	}
	return b.String()
}

// cut notes that a member, or an element of an array, was cut: its text has size bytes. Of a path only the first counts.
func (n *Notes) cut(key string, size int) {
	if n.Quiet {
		return
	}
	path := n.where(key)
	for _, c := range n.Cuts {
		if c.Path == path {
			return
		}
	}
	if len(n.Cuts) < maxMarks {
		n.Cuts = append(n.Cuts, Cut{path, size})
	}
}

// raw notes a text that is not UTF-8.
func (n *Notes) raw(key, s string) {
	if n.Quiet || len(n.Raws) == maxMarks {
		return
	}
	path := n.where(key)
	for i, count := 0, 1; i < len(n.Raws); i++ {
		if n.Raws[i].Path == path { // of lists: args, args#2, args#3
			count++
			path = n.where(key) + "#" + strconv.Itoa(count)
			i = -1
		}
	}
	n.Raws = append(n.Raws, Raw{path, s})
}

// Write writes the cuts and the texts that are not UTF-8, as members of o:
// "truncated" with paths and lengths, "base64" with the exact bytes by path.
func (n *Notes) Write(o Object) {
	if len(n.Cuts) > 0 {
		t := o.Obj("truncated")
		for _, c := range n.Cuts {
			t.Int(c.Path, int64(c.Bytes))
		}
		t.End()
	}
	if len(n.Raws) > 0 {
		r := o.Obj("base64")
		for _, raw := range n.Raws {
			r.Base64(raw.Path, []byte(raw.Bytes))
		}
		r.End()
	}
}
