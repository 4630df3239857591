package proof

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/internal/regular"
)

// StateErasure signs e and durably stores the statement in the run's directory. If the same record's
// erasure was already stated, it returns the earlier statement.
func StateErasure(dir string, e statement.Erasure, s note.Signer) (signed []byte, err error) {
	return keepErasure(dir, e, func() ([]byte, error) { return e.Sign(s) })
}

// KeepErasure is StateErasure with a statement that was signed elsewhere.
func KeepErasure(dir string, e statement.Erasure, signed []byte) error {
	_, err := keepErasure(dir, e, func() ([]byte, error) { return signed, nil })
	return err
}

func keepErasure(dir string, e statement.Erasure, sign func() ([]byte, error)) (signed []byte, err error) {
	path := filepath.Join(dir, statement.ErasureName(e.Seq))
	signed, err = regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if signed, err = sign(); err != nil {
			return nil, err
		}
		return signed, durable.ReplaceShared(path, signed, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("state erasure: %w", err)
	}
	n, err := statement.Unverified(signed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	was, err := statement.ParseErasure(n.Text)
	if err == nil && (was.Run != e.Run || was.Seq != e.Seq || was.Leaf != e.Leaf) {
		err = errors.New("it is about another record")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return signed, nil
}
