// Package pattern finds secrets that no one named: tier 2 of the redactor. It
// works with the rules of gitleaks v8, which come out of gitleaks' own Go module
// as its maintainers publish them, and promises nothing.
//
// # How a text is searched
//
// Most of a text must be passed over quickly, so a rule's regular expression is
// taken apart once (factor): into strings of which one stands in every match,
// what comes before them and what comes after. Then
//
//	text --> one automaton over the strings of all rules     (words)
//	           | an occurrence
//	           v
//	         what comes before, read backwards               (machine)
//	           | can match
//	           v
//	         what comes after, read until no match is left   (machine)
//	           | can match
//	           v
//	         the regular expression, on that piece of text   (rule)
//	           | matches
//	           v
//	         entropy, allowlists, stopwords, as gitleaks has them
//
// The machines are automata that are built as they are used. They only ever say
// "cannot match" rightly; whether and where something does is for the regular
// expression to say, on a piece that holds all that it would look at.
//
// # How it differs from gitleaks
//
// A stream has no paths: the rule for a path alone is left out, rules that also
// want a path do without, and what an allowlist says about paths is ignored; only
// the checksums of a go.sum, which gitleaks leaves out by its path, are left out by
// their form. A rule's keyword need not stand in the text when its expression has
// strings of its own. The two rules whose expression has none are tried within
// nearby bytes after their keyword, not all over the text. An expression without a
// bound is followed for maxSpan bytes after its literal, a block of several lines
// such as a private key for maxBlock. A comment "gitleaks:allow" changes nothing.
// Literals in which the long s or the Kelvin sign stand for s and k are not found.
package pattern
