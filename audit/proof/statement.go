package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// statementText returns what is signed: a line that names the kind of statement, and one of JSON. The first line keeps
// a signature on one kind of statement from being one on another.
func statementText(kind string, v any) (string, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode statement: %w", err)
	}
	return kind + string(line) + "\n", nil
}

// signStatement signs v, a struct. It refuses what Verify would not accept: a text that is not UTF-8, a time that is not
// in UTC, and more than 64 KiB.
func signStatement(kind string, v any, s note.Signer) ([]byte, error) {
	text, err := statementText(kind, v)
	if err != nil {
		return nil, err
	}
	if err := parseStatement(kind, text, reflect.New(reflect.TypeOf(v)).Interface()); err != nil {
		return nil, fmt.Errorf("sign statement: a text in it is not UTF-8, or a time not in UTC: %w", err)
	}
	signed, err := note.Sign(&note.Note{Text: text}, s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("sign statement: %w", err)
	case len(signed) > maxManifest:
		return nil, fmt.Errorf("sign statement: it has %d bytes, at most %d", len(signed), maxManifest)
	}
	return signed, nil
}

// parseStatement fills in v, a pointer, from the canonical text of a statement and no other.
func parseStatement(kind, text string, v any) error {
	line, ok := strings.CutPrefix(text, kind)
	if !ok {
		return fmt.Errorf("statement does not begin with %q", kind)
	}
	if err := json.Unmarshal([]byte(line), v); err != nil {
		return fmt.Errorf("decode statement: %w", err)
	}
	again, err := statementText(kind, v)
	if err != nil {
		return err
	}
	if again != text || !inUTC(reflect.ValueOf(v).Elem()) {
		return errors.New("statement is not in canonical form")
	}
	return nil
}

// inUTC reports whether the times of a statement are in UTC, in years from 1 to 9999.
func inUTC(statement reflect.Value) bool {
	for i := range statement.NumField() {
		if t, ok := statement.Field(i).Interface().(time.Time); ok && (t.Location() != time.UTC || t.Year() < 1) {
			return false
		}
	}
	return true
}
