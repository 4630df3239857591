package redteam

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
)

// forms returns the encodings of a value that the suite searches for, by their names in the guest's script. They do not
// use the redactor's code. For base64 at an offset, only the digits that depend on the value alone are returned.
func forms(value string) map[string][]byte {
	v := []byte(value)
	all := map[string]string{
		"raw": value, "hex": hex.EncodeToString(v), "hexup": strings.ToUpper(hex.EncodeToString(v)),
		"base64":    strings.TrimRight(base64.RawStdEncoding.EncodeToString(v[:len(v)/3*3]), "="),
		"base64url": base64.RawURLEncoding.EncodeToString(v[:len(v)/3*3]),
		"base64at1": inner(v, "x"), "base64at2": inner(v, "xy"), "user": inner(v, "x:"),
		"base32": base32.StdEncoding.EncodeToString(v[:len(v)/5*5]),
		"url":    url.QueryEscape(value), "urlall": each(v, "%%%02x"), "jsonall": each(v, `\u%04x`),
	}
	quoted, _ := json.Marshal(value) // a string can be
	all["gojson"] = strings.Trim(string(quoted), `"`)
	all["json"] = strings.ReplaceAll(value, `"`, `\"`)
	forms := map[string][]byte{"utf16le": nil, "utf16be": nil}
	for _, u := range utf16.Encode([]rune(value)) {
		forms["utf16le"] = append(forms["utf16le"], byte(u), byte(u>>8))
		forms["utf16be"] = append(forms["utf16be"], byte(u>>8), byte(u))
	}
	for name, s := range all {
		forms[name] = []byte(s)
	}
	return forms
}

// inner returns base64 of the value after a prefix, without the digits that also depend on the prefix or on following
// bytes.
func inner(v []byte, prefix string) string {
	s := base64.StdEncoding.EncodeToString(append([]byte(prefix), v...))
	from, to := (len(prefix)*8+5)/6, (len(prefix)+len(v))*8/6
	return s[from:to]
}

func each(v []byte, format string) string {
	var b strings.Builder
	for _, c := range v {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

// shown returns the name of the encoding in which text contains a value, "" for none. It ignores dots and case, which
// differ in DNS names.
func shown(text []byte, value string) string {
	flat := bytes.ToLower(bytes.ReplaceAll(text, []byte("."), nil))
	for name, f := range forms(value) {
		if bytes.Contains(text, f) {
			return name
		}
		if (name == "hex" || name == "base32" || name == "raw") && bytes.Contains(flat, bytes.ToLower(f)) {
			return name + " in a name"
		}
	}
	return ""
}
