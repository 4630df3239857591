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

func signStatement(kind string, v any, s note.Signer) ([]byte, error) {
	text, err := statementText(kind, v)
	if err != nil {
		return nil, err
	}
	signed, err := note.Sign(&note.Note{Text: text}, s)
	if err != nil {
		return nil, fmt.Errorf("sign statement: %w", err)
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
