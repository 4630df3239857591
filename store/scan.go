package store

import "github.com/custody-project/custody/audit"

// Reading heads bounds how fast a store takes records in, so that the form in which
// Custody writes them has a reader of its own. It understands JSON (RFC 8259)
// without space between tokens, keys of [a-z0-9_] where they matter, none of those twice,
// plain ASCII in the values that matter, and the kind before the payload.
// Whatever else comes is not refused here but left to encoding/json, so that
// both readers can only ever say the same: FuzzParseHead holds them to it.

// field is a value of a payload that stands in a head.
type field int

const (
	noField field = iota
	proc
	path
	host
	address // instead of a host
	hash
	secret
	rule
	fields
)

// columns are the fields of a head that the columns of payloads fill.
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

// fieldOf returns the field of a head that a payload's key fills.
func (s *searchable) fieldOf(key []byte) field {
	for i, name := range s.names {
		if string(key) == name {
			return s.fields[i]
		}
	}
	return noField
}

// known returns the searchable kind of that name, nil if there is none. It allocates nothing.
func known(k []byte) *searchable {
	for i := range searchables {
		if string(k) == string(searchables[i].kind) {
			return &searchables[i]
		}
	}
	return nil
}

// The keys of the envelope, as bits to find one that comes twice.
const (
	sawRun = 1 << iota
	sawSeq
	sawTime
	sawObserver
	sawKind
	sawStep
	sawPayload
)

// scanHead reads a head; ok is false when encoding/json has to. run is what the
// caller expects the run to be, which saves a copy of it.
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

// member reads the value of a key of the envelope, and returns the key.
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
	case "lifecycle", "gap": // rare, and decoded further
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

// payload reads the payload of h's kind, which is k.
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
			return false // twice
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
