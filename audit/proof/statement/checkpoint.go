package statement

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit/proof/merkle"
)

// maxCheckpoint bounds a checkpoint with all its cosignatures, in bytes.
const MaxCheckpoint = 64 << 10

// Checkpoint is a parsed checkpoint of a log (C2SP tlog-checkpoint).
type Checkpoint struct {
	Origin string // names the log: the name of the host's key
	Size   uint64 // entries
	Root   merkle.Hash
}

// ParseCheckpoint parses the text of a checkpoint without its signatures: three lines. It refuses extension lines,
// which C2SP tlog-checkpoint allows and Custody's logs do not have.
func ParseCheckpoint(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[3] != "" || !keyNames.MatchString(lines[0]) {
		return Checkpoint{}, errors.New("checkpoint is not a name, a size and a root on three lines")
	}
	c := Checkpoint{Origin: lines[0]}
	var err error
	if c.Size, err = strconv.ParseUint(lines[1], 10, 64); err != nil || strconv.FormatUint(c.Size, 10) != lines[1] {
		return Checkpoint{}, fmt.Errorf("checkpoint's size %.40q is not a number", lines[1])
	}
	if c.Root, err = merkle.ParseBase64(lines[2]); err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint's root: %w", err)
	}
	return c, nil
}

// readCheckpoint reads a signed checkpoint without checking its signatures.
func ReadCheckpoint(signed []byte) (Checkpoint, error) {
	n, err := Unverified(signed)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	return ParseCheckpoint(n.Text)
}
