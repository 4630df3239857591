package llm

import (
	"bytes"
	"math"
	"strconv"
)

// count is a number of tokens as a provider writes it: an integer, or null
// where there is none. What cannot be one becomes incredible.
type count int64

const (
	maxCount   = 1 << 40 // tokens of one call that are believed at most
	incredible = count(-1)
)

// UnmarshalJSON implements json.Unmarshaler; it never fails, so that the rest of the text is read.
func (c *count) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || f < 0 || f > maxCount || f != math.Trunc(f) {
		*c = incredible
		return nil
	}
	*c = count(f)
	return nil
}

// usage is what a call cost, as audit.LLM means it, as far as it was reported.
type usage struct {
	input, output         int64
	read, write, thinking int64

	in   bool // input was reported
	last bool // output is what it will be
}

// raise takes what is reported now. Figures within a stream are those so far, hence never shrink.
func (u *usage) raise(n usage) {
	u.input, u.output = max(u.input, n.input), max(u.output, n.output)
	u.read, u.write, u.thinking = max(u.read, n.read), max(u.write, n.write), max(u.thinking, n.thinking)
	u.in, u.last = u.in || n.in, u.last || n.last
}

func (u *usage) total() int64 { return u.input + u.output }
