package store

import "time"

// parseTime parses an RFC 3339 time in UTC as encoding/json writes it: with upper-case T
// and Z, and up to nine digits of the fraction. Others are left to encoding/json.
func parseTime(b []byte) (t time.Time, ok bool) {
	const shape = "0000-00-00T00:00:00"
	if len(b) <= len(shape) || b[len(b)-1] != 'Z' {
		return t, false
	}
	for i, c := range []byte(shape) {
		if c == '0' && !isDigit(b[i]) || c != '0' && b[i] != c {
			return t, false
		}
	}
	ns, ok := nanoseconds(b[len(shape) : len(b)-1])
	year, month, day := two(b)*100+two(b[2:]), two(b[5:]), two(b[8:])
	hour, minute, second := two(b[11:]), two(b[14:]), two(b[17:])
	if !ok || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59 {
		return t, false
	}
	t = time.Date(year, time.Month(month), day, hour, minute, second, ns, time.UTC)
	return t, day <= 28 || t.Day() == day // otherwise the month has no such day
}

func two(b []byte) int { return int(b[0]-'0')*10 + int(b[1]-'0') }

// nanoseconds parses a fraction of a second: nothing, or a point and one to nine digits.
func nanoseconds(b []byte) (ns int, ok bool) {
	if len(b) == 0 {
		return 0, true
	}
	if b[0] != '.' || len(b) < 2 || len(b) > 10 {
		return 0, false
	}
	for i := 1; i < 10; i++ {
		ns *= 10
		if i < len(b) {
			if !isDigit(b[i]) {
				return 0, false
			}
			ns += int(b[i] - '0')
		}
	}
	return ns, true
}
