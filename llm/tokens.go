package llm

import (
	"bytes"
	"math"
	"strconv"
)

// count is a number of tokens in a provider's report: an integer, or null for none. Other values become incredible.
type count int64

const (
	maxCount   = 1 << 40 // the maximum that is accepted for one call
	incredible = count(-1)
)

// UnmarshalJSON implements json.Unmarshaler; it never fails, so that the rest of the text is parsed.
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

// usage is the reported cost of a call, as audit.LLM defines it.
type usage struct {
	input, output         int64
	read, write, thinking int64

	in   bool // input was reported
	last bool // output is final
}

// raise adds a report. Reports within a stream are cumulative, so counts never decrease.
func (u *usage) raise(n usage) {
	u.input, u.output = max(u.input, n.input), max(u.output, n.output)
	u.read, u.write, u.thinking = max(u.read, n.read), max(u.write, n.write), max(u.thinking, n.thinking)
	u.in, u.last = u.in || n.in, u.last || n.last
}

func (u *usage) total() int64 { return u.input + u.output }
