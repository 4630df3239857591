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

// fieldOf says what a payload's key is for.
func fieldOf(kind audit.Kind, key []byte) field {
	switch kind {
	case audit.KindExec:
		switch string(key) {
		case "proc":
			return proc
		case "exe":
			return path
		}
	case audit.KindExit:
		if string(key) == "proc" {
			return proc
		}
	case audit.KindFile:
		switch string(key) {
		case "proc":
			return proc
		case "path":
			return path
		case "sha256":
			return hash
		}
	case audit.KindFlow:
		switch string(key) {
		case "proc":
			return proc
		case "name":
			return host
		case "dst_ip":
			return address
		}
	case audit.KindDNS:
		if string(key) == "name" {
			return host
		}
	case audit.KindHTTP:
		switch string(key) {
		case "host":
			return host
		case "credential":
			return secret
		}
	case audit.KindLLM:
		if string(key) == "host" {
			return host
		}
	case audit.KindSecret:
		switch string(key) {
		case "name":
			return secret
		case "host":
			return host
		}
	case audit.KindFinding:
		switch string(key) {
		case "proc":
			return proc
		case "rule":
			return rule
		case "secret":
			return secret
		}
	case audit.KindNote:
		if string(key) == "about" {
			return path
		}
	}
	return noField
}

// known returns k without an allocation where it is one that has a payload to look at, else ok is false.
func known(k []byte) (kind audit.Kind, ok bool) {
	for _, kind := range [...]audit.Kind{audit.KindExec, audit.KindExit, audit.KindFile, audit.KindFlow, audit.KindDNS,
		audit.KindHTTP, audit.KindLLM, audit.KindSecret, audit.KindFinding, audit.KindNote} {
		if string(k) == string(kind) {
			return kind, true
		}
	}
	return "", false
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

// member reads the value of a key of the envelope, and says which it was.
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
	if kind, ok := known(key); ok {
		return sawPayload, kind == h.Kind && s.payload(h)
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
	if kind, ok := known(text); ok {
		return kind
	}
	if string(text) == string(audit.KindOutput) {
		return audit.KindOutput
	}
	return audit.Kind(text)
}

// payload reads the payload of h's kind.
func (s *scanner) payload(h *Head) bool {
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
		if f := fieldOf(h.Kind, key); f == noField {
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
