package redact

// Follower is a Detector for texts whose end has not arrived yet, so that a Stream holds back only what may become a
// secret.
type Follower interface {
	Detector
	// Follow is Find for a text that continues, unless end is set. It adds the hits of text[:open] to dst, which further
	// text cannot change; text[open:] must be held back and passed to the next call. open is usually len(text), and
	// always so at the end. The bytes before from have been released; up to Before of them are needed as context, and no
	// hit begins there.
	Follow(dst []Hit, text []byte, from int, end bool) (hits []Hit, open int)
	// Before returns the number of bytes before from that are needed as context.
	Before() int
}
