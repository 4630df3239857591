// Package gitleaks holds Custody's tier 2 against gitleaks' own detector, with
// the same rules: what each finds of the examples that gitleaks' maintainers test
// their rules with, and how fast. It is a module of its own: but for the rules
// nothing of gitleaks is part of Custody.
//
//	go test -v .                    recall, rule by rule
//	go test -run '^$' -bench .      speed, side by side
package gitleaks
