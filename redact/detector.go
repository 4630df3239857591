package redact

// Hit is a piece of text that a Detector takes for a secret.
type Hit struct {
	Start, End int    // offsets into the text
	Rule       string // id of the rule, as it stands in the marker
}

// Detector finds secrets that nobody told the Redactor of: tier 2, which promises
// nothing. A hit's marker is [REDACTED:rule:tag], with the tag that the same bytes
// would have as an added value. A Detector is safe for concurrent use.
type Detector interface {
	// Find adds the hits in text to dst, sorted and not overlapping.
	Find(dst []Hit, text []byte) []Hit
	// Reach is the most bytes that a match and the keywords it needs span.
	Reach() int
	// Digest identifies the detector's rules.
	Digest() string
}
