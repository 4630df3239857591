package monitor

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
)

// OpenAt opens the state in a file, whose directory it creates if necessary, for the log that is published in a directory
// or at a URL.
func OpenAt(state, where string, keys []note.Verifier) (*Monitor, error) {
	source, err := OpenSource(where)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(state), 0o700); err != nil {
		return nil, err
	}
	return Open(state, source, keys...)
}

// StateFile returns the path of the state of a log in dir. Its name is a hash of the log's name, which can be any text.
func StateFile(dir, log string) string { return stateFile(dir, log, ".entries") }

// WitnessStateFile is StateFile for a witness that runs on the same machine. A witness reads checkpoints before they are
// published: with a shared state, a monitor would take the older published checkpoint for a rollback.
func WitnessStateFile(dir, log string) string { return stateFile(dir, log, ".witness") }

func stateFile(dir, log, suffix string) string {
	sum := sha256.Sum256([]byte(log))
	return filepath.Join(dir, hex.EncodeToString(sum[:16])+suffix)
}
