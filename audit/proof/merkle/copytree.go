package merkle

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/custody-project/custody/audit"
)

// CopyLeaf returns the hash of one file of a copy: LeafHash over its list's salt and over path, as, mode, size, sha256
// and link, as in the record and separated by zero bytes. None of them contains a zero byte.
func CopyLeaf(salt [16]byte, f audit.CopiedFile) Hash {
	fields := []string{string(f.Path), string(f.As), f.Mode, fmt.Sprint(f.Size), f.SHA256, string(f.Link)}
	return LeafHash(salt, []byte(strings.Join(fields, "\x00")))
}

// CopyTree is the Merkle tree over the files of one copy. The zero CopyTree is empty.
type CopyTree struct {
	tree  Tree
	bytes int64
}

// Add adds the files of a list.
func (t *CopyTree) Add(c *audit.Copy) error {
	salt, err := hex.DecodeString(c.Salt)
	if err != nil || len(salt) != 16 {
		return fmt.Errorf("the salt %.40q is not 16 bytes in hex", c.Salt)
	}
	for _, f := range c.Files {
		t.tree.Append(CopyLeaf([16]byte(salt), f))
		t.bytes += f.Size
	}
	return nil
}

// Count returns the number of files.
func (t *CopyTree) Count() int64 { return int64(t.tree.Size()) }

// Bytes returns the total size of the files' contents, in bytes.
func (t *CopyTree) Bytes() int64 { return t.bytes }

// Root returns the root over all files.
func (t *CopyTree) Root() Hash { return t.tree.Root() }
