// Package gitleaks compares Custody's tier 2 with gitleaks' own detector, with the
// same rules: the recall on the examples that gitleaks' maintainers test their rules
// with, and the speed. It is a separate module; Custody contains only gitleaks' rules.
//
//	go test -v .                    recall, rule by rule
//	go test -run '^$' -bench .      speed, side by side
package gitleaks
