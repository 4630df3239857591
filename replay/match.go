package replay

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Filter selects records of a run. Fields that are empty do not matter; of the others all must hold.
type Filter struct {
	Kinds    []audit.Kind
	Steps    []string
	Observer audit.Observer
	Verdict  audit.Verdict // of flows, questions, requests and accesses
	Proc     string        // uid of the process that the record is about
	Text     string        // stands in the record as a reader sees it, whatever the case
	From, To time.Time     // From inclusive, To exclusive, as in store.Query
	AfterSeq uint64
}

// Match reports whether a record is among those that f selects. Erased records have
// no more than their place and time, and unreadable ones what their row says.
func Match(f Filter, row store.Row) bool {
	switch {
	case row.Seq <= f.AfterSeq && f.AfterSeq > 0,
		!f.From.IsZero() && row.Time.Before(f.From),
		!f.To.IsZero() && !row.Time.Before(f.To),
		len(f.Kinds) > 0 && !slices.Contains(f.Kinds, row.Kind),
		len(f.Steps) > 0 && !slices.Contains(f.Steps, row.Step),
		f.Observer != "" && row.Observer != f.Observer,
		f.Proc != "" && row.Proc != f.Proc:
		return false
	case f.Verdict == "" && f.Text == "":
		return true
	case row.Erased != nil:
		return false
	}
	return (f.Verdict == "" || verdictOf(row.Body) == f.Verdict) && (f.Text == "" || hasText(row.Body, f.Text))
}

// verdictOf returns the verdict that a record speaks, empty if it speaks none.
func verdictOf(body []byte) audit.Verdict {
	if !bytes.Contains(body, []byte(`"verdict"`)) && !bytes.Contains(body, []byte(`\`)) { // nearly all records
		return ""
	}
	var r struct {
		Kind                    audit.Kind
		Flow, DNS, HTTP, Access struct{ Verdict audit.Verdict }
	}
	if json.Unmarshal(body, &r) != nil {
		return ""
	}
	switch r.Kind {
	case audit.KindFlow:
		return r.Flow.Verdict
	case audit.KindDNS:
		return r.DNS.Verdict
	case audit.KindHTTP:
		return r.HTTP.Verdict
	case audit.KindAccess:
		return r.Access.Verdict
	}
	return ""
}

// hasText looks for text in a record's values: in strings with their escapes
// resolved, in bytes that stand there as base64, in numbers, and in the names of fields.
func hasText(body []byte, text string) bool {
	if plainText(text) && !bytes.ContainsAny(body, `\`) && !bytes.Contains(body, []byte(`"base64"`)) {
		return containsFold(body, text) // the bytes are what a reader sees
	}
	want := strings.ToLower(text)
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	encoded := false
	for {
		tok, err := dec.Token()
		if err != nil {
			return err.Error() != "EOF" && containsFold(body, text) // unreadable: its bytes are all there is
		}
		var s string
		switch t := tok.(type) {
		case string:
			s = t
		case json.Number:
			s = t.String()
		}
		if s != "" && (strings.Contains(strings.ToLower(s), want) || encoded && inBase64(s, want)) {
			return true
		}
		encoded = s == "base64"
	}
}

func inBase64(s, want string) bool {
	var t audit.Text
	quoted, err := json.Marshal(map[string]string{"base64": s})
	return err == nil && t.UnmarshalJSON(quoted) == nil && strings.Contains(strings.ToLower(string(t)), want)
}

// plainText reports whether JSON writes text as it is.
func plainText(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// containsFold looks for text whatever the case, without a copy.
func containsFold(body []byte, text string) bool {
	if text == "" {
		return true
	}
	first, _ := utf8.DecodeRuneInString(text)
	either := string(unicode.ToLower(first)) + string(unicode.ToUpper(first))
	for len(body) >= len(text) {
		i := bytes.IndexAny(body, either)
		if i < 0 || len(body)-i < len(text) {
			return false
		}
		if bytes.EqualFold(body[i:i+len(text)], []byte(text)) {
			return true
		}
		body = body[i+1:]
	}
	return false
}
