// Package pattern finds secrets that were not declared: tier 2 of the redactor. It uses the rules of gitleaks v8, which
// are part of gitleaks' Go module, and guarantees nothing.
//
// # How a text is searched
//
// Most of a text must be skipped quickly, so each rule's regular expression is factored once (factor): into strings of
// which one is in every match, the expression before them and the expression after them. Then
//
//	text --> one automaton over the strings of all rules     (words)
//	           | an occurrence
//	           v
//	       the expression before, matched backwards (machine)
//	           | can match
//	           v
//	       the expression after, matched until no match is possible (machine)
//	           | can match
//	           v
//	         the regular expression, on that piece of text   (rule)
//	           | matches
//	           v
//	         entropy, allowlists, stopwords, as gitleaks has them
//
// The machines are automata that are built as they are used. They are exact only when they reject: the regular
// expression decides whether and where there is a match, on a piece with all the context that it needs.
//
// # Differences to gitleaks
//
// A stream has no paths: the rule for a path alone is omitted, rules that also require a path are applied without it,
// and allowlists of paths are ignored; only the checksums of a go.sum, which gitleaks excludes by path, are excluded by
// their form. A rule's keyword need not be in the text if its expression has strings. The two rules whose expression has
// none are applied only within nearby bytes after their keyword. An unbounded expression is followed for maxSpan bytes
// after its literal, a block of several lines such as a private key for maxBlock. A comment "gitleaks:allow" has no
// effect. Literals in which the long s or the Kelvin sign replaces s or k are not found.
package pattern
