// Package utils replaces the file validate.go of gitleaks' package utils in a build
// of its rule generator: instead of testing a rule against its examples it writes the
// examples to a file.
package utils

import (
	"encoding/json"
	"os"

	"github.com/zricethezav/gitleaks/v8/config"
)

type example struct {
	Rule     string
	Path     string `json:",omitempty"`
	Text     string
	Positive bool
}

func Validate(rule config.Rule, truePositives, falsePositives []string) *config.Rule {
	for _, s := range truePositives {
		note(example{Rule: rule.RuleID, Text: s, Positive: true})
	}
	for _, s := range falsePositives {
		note(example{Rule: rule.RuleID, Text: s})
	}
	return &rule
}

func ValidateWithPaths(rule config.Rule, truePositives, falsePositives map[string]string) *config.Rule {
	for path, s := range truePositives {
		note(example{Rule: rule.RuleID, Path: path, Text: s, Positive: true})
	}
	for path, s := range falsePositives {
		note(example{Rule: rule.RuleID, Path: path, Text: s})
	}
	return &rule
}

func note(e example) {
	f, err := os.OpenFile(os.Getenv("GITLEAKS_EXAMPLES"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = json.NewEncoder(f).Encode(e)
		f.Close()
	}
	if err != nil {
		panic(err)
	}
}
