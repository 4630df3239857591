package cef

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
)

// Bounds of values, in bytes before escaping. Keys of the CEF dictionary have the length
// in the dictionary; custom keys have maxOwn.
const (
	maxOwn   = 32 << 10
	maxLine  = 256 << 10 // of all values together
	maxMarks = 32        // cuts that are listed individually
)

// length returns the maximum length of a key's value: that of the dictionary for texts (Implementing
// ArcSight Common Event Format, extension dictionary).
func length(key string) int {
	switch key {
	case "act", "outcome":
		return 63
	case "app", "proto":
		return 31
	case "dvchost":
		return 100
	case "externalId":
		return 40
	case "fileHash", "deviceExternalId":
		return 255
	case "cs1", "cs2", "cs3", "cs4", "cs5", "cs6":
		return 4000
	}
	if strings.HasPrefix(key, "custody") {
		return maxOwn
	}
	return 1023 // all others
}

// line writes the header and the extension of one event. It implements the syntax and its bounds.
type line struct {
	b    []byte
	left int
	keys int // that were written
	cuts []cut
}

type cut struct {
	key   string
	bytes int // of the complete value
}

// header writes the seven fields before the extension.
func (l *line) header(version, signature, name string, severity int64) {
	l.b = append(l.b, "CEF:0|Custody|Custody|"...)
	l.field(version)
	l.field(signature)
	l.field(name)
	l.b = strconv.AppendInt(l.b, severity, 10)
	l.b = append(l.b, '|')
}

// field writes one field of the header: pipe and backslash are escaped, and line feeds removed.
func (l *line) field(s string) {
	s = clip(s, 255)
	for i := 0; i < len(s); {
		c := s[i]
		if c == '|' || c == '\\' {
			l.b = append(l.b, '\\', c)
			i++
			continue
		}
		n, odd := char(s[i:])
		if odd {
			l.b = appendCode(l.b, s[i:i+n])
		} else {
			l.b = append(l.b, s[i:i+n]...)
		}
		i += n
	}
	l.b = append(l.b, '|')
}

// severity maps the severities of RFC 5424 to CEF's scale: 0 to 3 is low, 9 and 10 very high.
func severity(s export.Severity) int64 {
	switch s {
	case export.Alert:
		return 10
	case export.Error:
		return 8
	case export.Warning:
		return 6
	case export.Notice:
		return 4
	}
	return 2
}

func (l *line) key(key string) {
	if l.keys++; l.keys > 1 {
		l.b = append(l.b, ' ')
	}
	l.b = append(l.b, key...)
	l.b = append(l.b, '=')
}

// fixed writes a value that needs no escape.
func (l *line) fixed(key, s string) {
	l.key(key)
	l.b = append(l.b, s...)
}

// str writes a non-empty text.
func (l *line) str(key, s string) {
	if s == "" {
		return
	}
	l.key(key)
	l.value(key, length(key), s)
}

// value writes at most limit bytes of s, escaped, and returns how many it wrote.
func (l *line) value(key string, limit int, s string) int {
	if limit = min(limit, l.left); len(s) > limit {
		l.mark(key, len(s))
		s = clip(s, limit)
	}
	l.left -= len(s)
	start := 0
	for i := 0; i < len(s); {
		if plain[s[i]] {
			i++
			continue
		}
		n := 1
		switch s[i] {
		case '\\', '=':
			l.b = append(append(l.b, s[start:i]...), '\\', s[i])
		case '\n':
			l.b = append(append(l.b, s[start:i]...), '\\', 'n')
		case '\r':
			l.b = append(append(l.b, s[start:i]...), '\\', 'r')
		default:
			var odd bool
			if n, odd = char(s[i:]); !odd {
				i += n
				continue
			}
			l.b = append(l.b, s[start:i]...)
			l.b = appendCode(l.b, s[i:i+n])
		}
		i += n
		start = i
	}
	l.b = append(l.b, s[start:]...)
	return len(s)
}

// char returns the length of the first character, and whether it must be escaped.
func char(s string) (n int, odd bool) {
	r, n := utf8.DecodeRuneInString(s)
	return n, r == utf8.RuneError && n == 1 || r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029
}

// appendCode appends a character by its number, with the backslash escaped: \xNN for a byte, otherwise \uNNNN.
func appendCode(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, `\\`...)
	if len(s) == 1 {
		return append(b, 'x', hex[s[0]>>4], hex[s[0]&15])
	}
	r, _ := utf8.DecodeRuneInString(s)
	return append(b, 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// words writes a list of texts, quoted for a POSIX shell, separated by spaces.
func (l *line) words(key string, list []audit.Text) {
	if len(list) == 0 {
		return
	}
	l.key(key)
	left := length(key)
	for i, t := range list {
		if left < 3 || l.left < 3 {
			n := 0
			for _, t := range list[i:] {
				n += len(t)
			}
			l.mark(key, n)
			break
		}
		if i > 0 {
			l.b = append(l.b, ' ')
			left--
		}
		left -= l.word(key, left, string(t))
	}
}

func (l *line) word(key string, limit int, s string) int {
	if s != "" && !strings.ContainsFunc(s, needsQuotes) {
		return l.value(key, limit, s)
	}
	l.b = append(l.b, '\'')
	n := l.value(key, limit-2, strings.ReplaceAll(s, "'", `'\''`))
	l.b = append(l.b, '\'')
	return n + 2
}

func needsQuotes(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("@%+=:,./-_", r)
}

// int writes a number.
func (l *line) int(key string, n int64) {
	l.key(key)
	l.b = strconv.AppendInt(l.b, n, 10)
}

// uint writes a number that may exceed the range of a signed one.
func (l *line) uint(key string, n uint64) {
	l.key(key)
	l.b = strconv.AppendUint(l.b, n, 10)
}

// time writes a time in UTC, RFC 3339 with nanoseconds.
func (l *line) time(key string, t time.Time) {
	l.key(key)
	l.b = t.UTC().AppendFormat(l.b, time.RFC3339Nano)
}

// intIf writes a non-zero number.
func (l *line) intIf(key string, n int64) {
	if n != 0 {
		l.int(key, n)
	}
}

// uintIf writes a non-zero number, clamped to the range of a signed one.
func (l *line) uintIf(key string, n uint64) {
	if n > math.MaxInt64 {
		l.mark(key, 0)
		n = math.MaxInt64
	}
	l.intIf(key, int64(n))
}

func (l *line) yes(key string, b bool) {
	if b {
		l.fixed(key, "true")
	}
}

// custom writes one of the keys cs1 to cs6 and cn1 to cn3 with its label.
func (l *line) custom(key, label, s string) {
	if s != "" {
		l.fixed(key+"Label", label)
		l.str(key, s)
	}
}

func (l *line) customInt(key, label string, n int64) {
	l.fixed(key+"Label", label)
	l.int(key, n)
}

func (l *line) mark(key string, n int) {
	for _, c := range l.cuts {
		if c.key == key {
			return
		}
	}
	if len(l.cuts) < maxMarks {
		l.cuts = append(l.cuts, cut{key, n})
	}
}

// finish adds the list of cut values.
func (l *line) finish() []byte {
	for i, c := range l.cuts {
		if i == 0 {
			l.key("custodyTruncated")
		} else {
			l.b = append(l.b, ' ')
		}
		l.b = append(l.b, c.key...)
		l.b = append(l.b, ':')
		l.b = strconv.AppendInt(l.b, int64(c.bytes), 10)
	}
	return l.b
}

// plain are the bytes that need no escape in a value.
var plain = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '=' && c != '\\'
	}
	return t
}()

// clip cuts s to at most n bytes, at a character boundary if it is UTF-8.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(n, 0)
	for i := n; i > n-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n]
}
