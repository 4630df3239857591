package service

import (
	"strings"

	"github.com/custody-project/custody/doctor/remedy"
)

// maxText bounds the text of a message in bytes.
const maxText = 8 << 10

// clip returns text as it fits into a message.
func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "?") }

// failureOf returns the Failure of an error, nil for nil.
func failureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	return &Failure{clip(remedy.Text(err)), clip(remedy.Of(err))}
}
