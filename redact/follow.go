package redact

// Follower is a Detector that can be asked about a text whose end is not there
// yet, so that a Stream holds back what may become a secret and nothing else.
type Follower interface {
	Detector
	// Follow is Find for a text that goes on, unless it ends here. The hits of
	// text[:open] are added to dst and will not change whatever comes; text[open:]
	// must be held back and be part of the next call. open is len(text) most of
	// the time, and at the end. The bytes before from went out already; up to
	// Before of them help to judge what follows, and no hit begins there.
	Follow(dst []Hit, text []byte, from int, end bool) (hits []Hit, open int)
	// Before is how many bytes before from make a difference.
	Before() int
}
