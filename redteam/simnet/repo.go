package simnet

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net/http"
)

// RepoFile is the only file of the repository, and RepoText its content.
const (
	RepoFile = "README"
	RepoText = "cloned from the simulated internet\n"
)

// repository serves a git repository with one commit over the "dumb" protocol: the files of a .git directory
// (gitprotocol-http(5); format of loose objects in git's "Git Internals").
func repository() http.Handler {
	files := map[string][]byte{"/HEAD": []byte("ref: refs/heads/main\n"), "/objects/info/packs": {}}
	blob := object(files, "blob", []byte(RepoText))
	tree := object(files, "tree", append([]byte("100644 "+RepoFile+"\x00"), blob[:]...))
	who := "The World <world@" + Zone + "> 1700000000 +0000"
	commit := object(files, "commit", fmt.Appendf(nil, "tree %x\nauthor %s\ncommitter %s\n\nFirst\n", tree, who, who))
	files["/info/refs"] = fmt.Appendf(nil, "%x\trefs/heads/main\n", commit)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "application/octet-stream")
		if r.URL.Path == "/info/refs" {
			rw.Header().Set("Content-Type", "text/plain")
		}
		rw.Write(b)
	})
}

// object adds a loose object and returns its id.
func object(files map[string][]byte, kind string, body []byte) [sha1.Size]byte {
	whole := append(fmt.Appendf(nil, "%s %d\x00", kind, len(body)), body...)
	id := sha1.Sum(whole)
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	z.Write(whole) // a Buffer takes all
	z.Close()
	name := hex.EncodeToString(id[:])
	files["/objects/"+name[:2]+"/"+name[2:]] = b.Bytes()
	return id
}
