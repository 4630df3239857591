package proof

import (
	"fmt"
	"path/filepath"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
)

// Signers returns the prefixes "NAME+HASH+" of the keys that signed the manifests of the run in dir, each once and in
// order. It verifies nothing.
func Signers(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+wal.ManifestSuffix))
	if err != nil {
		return nil, err
	}
	var all []string
	known := map[string]bool{}
	for _, file := range files {
		data, err := regular.ReadFile(file)
		if err != nil {
			return nil, err
		}
		by, err := statement.SignerOf(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		if !known[by] {
			known[by] = true
			all = append(all, by)
		}
	}
	return all, nil
}
