package store

import "github.com/custody-project/custody/audit"

// Parsing heads bounds the rate of ingest, so the form that Custody
// writes has a separate parser. It supports JSON (RFC 8259)
// without space between tokens, relevant keys of [a-z0-9_] without duplicates,
// plain ASCII in relevant values, and the kind before the payload.
// It leaves any other input to encoding/json, so that
// both parsers have the same results, which FuzzParseHead checks.

// field is a value of a payload that a head contains.
type field int

const (
	noField field = iota
	proc
	path
	host
	address // used if there is no host
	hash
	secret
	rule
	fields
)

// columns are the fields of a head for the columns of payloads.
var columns = map[audit.Column]field{
	audit.ColumnProc: proc, audit.ColumnPath: path, audit.ColumnHost: host, audit.ColumnAddress: address,
	audit.ColumnHash: hash, audit.ColumnSecret: secret, audit.ColumnRule: rule,
}

// searchable is a kind with searchable fields in its payload.
type searchable struct {
	kind   audit.Kind
	names  []string
	fields []field
}

// searchables are the kinds of the table that have such fields.
var searchables = func() (list []searchable) {
	for _, k := range audit.KindTable() {
		if len(k.Columns) == 0 {
			continue
		}
		s := searchable{kind: k.Kind}
		for _, c := range k.Columns {
			s.names, s.fields = append(s.names, c.Field), append(s.fields, columns[c.Column])
		}
		list = append(list, s)
	}
	return list
}()

// fieldOf returns the field of a head for a payload's key.
func (s *searchable) fieldOf(key []byte) field {
	for i, name := range s.names {
		if string(key) == name {
			return s.fields[i]
		}
	}
	return noField
}

// known returns the searchable kind with that name, nil if there is none. It does not allocate.
func known(k []byte) *searchable {
	for i := range searchables {
		if string(k) == string(searchables[i].kind) {
			return &searchables[i]
		}
	}
	return nil
}

// The keys of the envelope, as bits to detect duplicates.
const (
	sawRun = 1 << iota
	sawSeq
	sawTime
	sawObserver
	sawKind
	sawStep
	sawPayload
)

// scanHead parses a head; ok is false if encoding/json must parse it. run is the
// expected run, which saves a copy.
func scanHead(body []byte, run string) (h Head, ok bool) {
	s := scanner{b: body}
	if !s.is('{') {
		return h, false
	}
	seen := 0
	for {
		key, ok := s.key()
		if !ok {
			return h, false
		}
		saw, ok := s.member(&h, key, run)
		if !ok || seen&saw != 0 {
			return h, false
		}
		seen |= saw
		if s.is(',') {
			continue
		}
		return h, s.is('}') && s.i == len(s.b) && h.check() == nil
	}
}

// member parses the value of a key of the envelope, and returns the key.
func (s *scanner) member(h *Head, key []byte, run string) (saw int, ok bool) {
	var text []byte
	switch string(key) {
	case "run":
		text, ok = s.plain()
		if h.Run = run; string(text) != run {
			h.Run = string(text)
		}
		return sawRun, ok
	case "seq":
		h.Seq, ok = s.uint()
		return sawSeq, ok
	case "time":
		if text, ok = s.plain(); ok {
			h.Time, ok = parseTime(text)
		}
		return sawTime, ok
	case "observer":
		text, ok = s.plain()
		h.Observer = observer(text)
		return sawObserver, ok
	case "kind":
		text, ok = s.plain()
		h.Kind = kindOf(text)
		return sawKind, ok
	case "step":
		text, ok = s.plain()
		h.Step = string(text)
		return sawStep, ok
	case "lifecycle", "gap": // rare, and decoded later
		return 0, false
	}
	if k := known(key); k != nil {
		return sawPayload, k.kind == h.Kind && s.payload(h, k)
	}
	return 0, s.value()
}

func observer(text []byte) audit.Observer {
	switch string(text) {
	case string(audit.Host):
		return audit.Host
	case string(audit.Guest):
		return audit.Guest
	}
	return audit.Observer(text)
}

func kindOf(text []byte) audit.Kind {
	if k := known(text); k != nil {
		return k.kind
	}
	if string(text) == string(audit.KindOutput) {
		return audit.KindOutput
	}
	return audit.Kind(text)
}

// payload parses the payload of h's kind, which is k.
func (s *scanner) payload(h *Head, k *searchable) bool {
	if !s.is('{') {
		return false
	}
	var values [fields][]byte
	if s.is('}') {
		return true
	}
	for {
		key, ok := s.key()
		if !ok {
			return false
		}
		if f := k.fieldOf(key); f == noField {
			ok = s.value()
		} else if values[f] != nil {
			return false // duplicate
		} else {
			values[f], ok = s.plain()
		}
		if !ok {
			return false
		}
		if s.is(',') {
			continue
		}
		h.take(&values)
		return s.is('}')
	}
}

func (h *Head) take(values *[fields][]byte) {
	h.Proc, h.Path, h.Hash = string(values[proc]), string(values[path]), string(values[hash])
	h.Secret, h.Rule = string(values[secret]), string(values[rule])
	if h.Host = HostName(string(values[host])); h.Host == "" {
		h.Host = HostName(string(values[address]))
	}
}
