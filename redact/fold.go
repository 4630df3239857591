package redact

// Text is compared in a folded form: ASCII letters are in lower case and filler is removed: blanks, and dots that the
// value does not have. The remaining characters are its symbols. Folding makes mixed-case hex, mixed-case percent
// escapes, and base64 or hex that is wrapped at any column or split into the labels of a domain name equal to the plain
// form, in one pass. All exact matches also match in folded form, so folding can only mask more.

// maxGap is the maximum of consecutive filler in a match: enough for a line break with indentation. It bounds the data
// that a Stream holds back.
const maxGap = 16

func isFiller(b byte) bool { return isBlank(b) || b == '.' }

func isBlank(b byte) bool {
	return b == ' ' || b == '\n' || b == '\t' || b == '\r'
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// isDigit reports whether b is in the alphabet of base64 (standard or URL) or base32.
func isDigit(b byte) bool {
	l := lower(b)
	return 'a' <= l && l <= 'z' || '0' <= b && b <= '9' || b == '+' || b == '/' || b == '-' || b == '_'
}

// symbols has the symbol of each byte and, above it, the number of bits by which the byte shifts the window of the last
// symbols: filler has no symbol and shifts by nothing.
var symbols = func() (table [256]uint16) {
	for b := range table {
		if !isFiller(byte(b)) {
			table[b] = 8<<8 | uint16(lower(byte(b)))
		}
	}
	return table
}()

// fold returns b in the form in which it is compared, including its own dots.
func fold(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if !isBlank(c) {
			out = append(out, lower(c))
		}
	}
	return out
}

// back goes back over n symbols from end and returns the position of the last one and their number, which is less than n
// at the beginning of t or at more than maxGap filler.
func back(t []byte, end, n int) (start, got int) {
	start = end
	gap := 0
	for i := end - 1; i >= 0 && got < n && gap <= maxGap; i-- {
		if isFiller(t[i]) {
			gap++
			continue
		}
		start, got, gap = i, got+1, 0
	}
	return start, got
}

// digitsBefore returns the start of up to n base64 digits that end at start.
func digitsBefore(t []byte, start, n int) int {
	gap := 0
	for i := start - 1; i >= 0 && n > 0 && gap <= maxGap; i-- {
		if isFiller(t[i]) {
			gap++
			continue
		}
		if !isDigit(t[i]) {
			break
		}
		start, n, gap = i, n-1, 0
	}
	return start
}
