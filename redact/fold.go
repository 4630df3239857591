package redact

// Text is compared in a folded view: ASCII letters are lower case and filler is left out: blanks, and dots that the
// value does not have. What is left are its symbols. Folding makes mixed-case hex, mixed-case percent escapes, base64
// or hex wrapped at any column or cut into the labels of a domain name equal to the plain form, in one pass. Whatever
// matches byte for byte also matches folded, so folding can only mask more, never less.

// maxGap is how much filler in a row a match may contain: enough for a line
// break and the indentation after it. It bounds what a Stream holds back.
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

// symbols has for each byte its symbol and, above that, by how many bits it
// moves the window of the last symbols: filler has no symbol and moves nothing.
var symbols = func() (table [256]uint16) {
	for b := range table {
		if !isFiller(byte(b)) {
			table[b] = 8<<8 | uint16(lower(byte(b)))
		}
	}
	return table
}()

// fold returns b as it is compared, which leaves its own dots in.
func fold(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if !isBlank(c) {
			out = append(out, lower(c))
		}
	}
	return out
}

// back walks from end over n symbols to the left and returns where the last of
// them stands and how many there were: fewer than n at the beginning of t or at
// more than maxGap filler.
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

// digitsBefore returns where up to n base64 digits begin that end at start.
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
