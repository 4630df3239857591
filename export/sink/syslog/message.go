package syslog

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/custody-project/custody/export"
)

// Parts of each message. The facility is "log audit" of RFC 5424, table 1. 32473 is the enterprise number that RFC 5612
// reserves for examples.
const (
	facility = 13
	appName  = "custody"
	sdID     = "custody@32473"
	timeForm = "2006-01-02T15:04:05.000000Z07:00"
)

// appendFrame appends an event as a message of RFC 5424 after its length in octets (RFC 6587, section 3.4.1):
//
//	LEN <PRI>1 TIME HOST custody - KIND [custody@32473 id="..." run="..." seq="..." tenant="..."] DATA
func appendFrame(dst []byte, i export.Item) []byte {
	m := appendMessage(nil, i)
	dst = strconv.AppendInt(dst, int64(len(m)), 10)
	return append(append(dst, ' '), m...)
}

func appendMessage(dst []byte, i export.Item) []byte {
	dst = append(dst, '<')
	dst = strconv.AppendInt(dst, int64(facility<<3|max(0, min(int(i.Severity), 7))), 10)
	dst = append(dst, ">1 "...)
	dst = i.Time.UTC().AppendFormat(dst, timeForm)
	dst = append(dst, ' ')
	dst = append(dst, name(i.Host, 255)...)
	dst = append(dst, " "+appName+" - "...)
	dst = append(dst, name(string(i.Kind), 32)...)
	dst = append(dst, " ["+sdID...)
	dst = parameter(dst, "id", i.ID)
	dst = parameter(dst, "run", i.Run)
	dst = parameter(dst, "seq", strconv.FormatUint(i.Seq, 10))
	if i.Tenant != "" {
		dst = parameter(dst, "tenant", i.Tenant)
	}
	dst = append(dst, "] "...)
	return append(dst, i.Data...)
}

// name makes s valid for a field of the header: printable ASCII without spaces, "-" if it is empty.
func name(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, s)
	if s == "" {
		return "-"
	}
	return s[:min(len(s), most)]
}

// parameter appends a parameter of the structured data (section 6.3.3): ", \ and ] are escaped; UTF-8 without control characters.
func parameter(dst []byte, key, value string) []byte {
	dst = append(append(append(dst, ' '), key...), `="`...)
	for _, r := range value {
		switch {
		case r == '"' || r == '\\' || r == ']':
			dst = append(dst, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			dst = append(dst, '_')
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
