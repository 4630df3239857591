package fleet

import (
	"maps"
	"reflect"
	"time"
	"unicode/utf8"
)

// Request describes a sandbox to create.
type Request struct {
	Tenant  string
	Caller  string // who creates it, for the list of sandboxes
	Project string // a registered project; empty: none, with the defaults
	// Policy is a project file that narrows the project; empty: none.
	Policy    string
	Template  string // empty: the project's
	Isolation string // empty: the best tier that works
	Metadata  map[string]string
	Idle      time.Duration // without calls, while its processes do nothing, until it ends, at most limits.idle of the project; 0: that, or the default
	Time      time.Duration // until it ends; 0: limits.time of the project, which bounds it
	// Session is a key: while a sandbox of the project has it, Create returns that one.
	Session string
	// Idempotency is a key of the attempt: a repetition returns the sandbox of the first one.
	Idempotency string
	// Lazy starts the sandbox when it is first used.
	Lazy bool
}

// Bounds of metadata.
const (
	maxMetadata      = 64   // entries
	maxMetadataBytes = 4096 // of a value
)

func (r *Request) check() error {
	for name, text := range map[string]string{"session": r.Session, "idempotency key": r.Idempotency} {
		if len(text) > maxKey || !utf8.ValidString(text) {
			return invalid("the %s has %d bytes: use at most %d bytes of UTF-8", name, len(text), maxKey)
		}
	}
	if r.Idle < 0 || r.Time < 0 {
		return invalid("a time limit is negative")
	}
	if len(r.Metadata) > maxMetadata {
		return invalid("the metadata has %d entries: use at most %d", len(r.Metadata), maxMetadata)
	}
	for k, v := range r.Metadata {
		if k == "" || len(k) > maxKey || len(v) > maxMetadataBytes {
			return invalid("the metadata %.40q is too long: a name has 1 to %d bytes, a value at most %d", k, maxKey, maxMetadataBytes)
		}
	}
	return nil
}

// same reports whether two requests are equal, apart from who makes them.
func (r Request) same(other Request) bool {
	r.Caller, other.Caller = "", ""
	if len(r.Metadata) == 0 && len(other.Metadata) == 0 {
		r.Metadata, other.Metadata = nil, nil
	}
	return reflect.DeepEqual(r, other)
}

// sameShape reports whether one sandbox can serve both requests.
func (r Request) sameShape(other Request) bool {
	return r.Template == other.Template && r.Isolation == other.Isolation && r.Policy == other.Policy
}

// clone returns a copy that shares nothing.
func (r Request) clone() Request {
	r.Metadata = maps.Clone(r.Metadata)
	return r
}
