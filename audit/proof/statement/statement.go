// Package statement defines what a host signs: manifests of segments, and statements that a record was erased, a run
// deleted, a key rotated, and the like; and the entries of the host's log that name them. It encodes, signs and parses.
// It does not decide which keys to trust: package proof does.
//
// A statement is a C2SP signed note (golang.org/x/mod/sumdb/note, Ed25519) over two lines:
//
//	custody manifest v1
//	{"v":1,"run":"r-...","segment":0,"first":1,"last":873,...,"prev":"","root":"..."}
//
//	— custody-host+1a2b3c4d AbCd...
//
// The first line names the kind of statement, so that a signature on one kind is not valid for another. The second is
// canonical: the encoding that this package makes, and no other.
package statement

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Parse parses the text of a statement of any kind, without its signature, or that of a checkpoint. It returns a value of the kind's type,
// such as a Manifest. It accepts canonical encodings only.
func Parse(text string) (any, error) {
	kind, _, _ := strings.Cut(text, "\n")
	switch kind + "\n" {
	case manifestType:
		return ParseManifest(text)
	case erasureType:
		return ParseErasure(text)
	case deletionType:
		return ParseDeletion(text)
	case rotationType:
		return ParseRotation(text)
	case hostType:
		return ParseHost(text)
	case attachmentsType:
		return ParseAttachments(text)
	case selectionType:
		return ParseSelected(text)
	case trailerType:
		return ParseTrailer(text)
	}
	if strings.Contains(kind, " ") { // the name of a log has no spaces
		return nil, fmt.Errorf("statement of an unknown kind: %.60q", kind)
	}
	return ParseCheckpoint(text)
}

// statementText returns the signed text: a line that names the kind of statement, and a line of JSON. The first line
// prevents that a signature on one kind of statement is valid for another.
func statementText(kind string, v any) (string, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode statement: %w", err)
	}
	return kind + string(line) + "\n", nil
}

// signStatement signs v, a struct. It refuses what Verify would not accept: text that is not UTF-8, a time that is not
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
	case len(signed) > MaxNote:
		return nil, fmt.Errorf("sign statement: it has %d bytes, at most %d", len(signed), MaxNote)
	}
	return signed, nil
}

// parseStatement decodes the canonical text of a statement into v, a pointer.
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
func inUTC(stated reflect.Value) bool {
	for i := range stated.NumField() {
		if t, ok := stated.Field(i).Interface().(time.Time); ok && (t.Location() != time.UTC || t.Year() < 1) {
			return false
		}
	}
	return true
}
