package ship

import (
	"fmt"
	"strings"

	"github.com/custody-project/custody/store"
)

// Subjects contain the tenant and host of a message, so that the permissions of a NATS user
// separate tenants and hosts:
//
//	custody.v1.segment.<tenant>.<host>.<run>   segments; the stream CUSTODY stores them
//	custody.v1.stored.<tenant>.<host>          the ingester to a host: what was committed
//	custody.v1.ask.<tenant>                    questions about what the store has
//	custody.v1.tail.<tenant>.<run>             new records, best effort
//	custody.v1.refused.<tenant>                segments that no store can accept; the stream CUSTODY_REFUSED stores them
//	custody.v1.inbox.<tenant>.<host>.>         answers to that host
//
// A name is one token: a dot, which would begin another, is encoded as an underscore, an underscore
// as an equals sign, and the empty name as an underscore. No two names have the same token.
const (
	subjectRoot  = "custody.v1."
	segmentRoot  = subjectRoot + "segment."
	storedRoot   = subjectRoot + "stored."
	askRoot      = subjectRoot + "ask."
	tailRoot     = subjectRoot + "tail."
	refusedRoot  = subjectRoot + "refused."
	inboxRoot    = subjectRoot + "inbox."
	segmentsFrom = segmentRoot + "*.*.*"
)

// subjectOf returns the subject of a segment.
func subjectOf(tenant, host, run string) (string, error) {
	if run == "" {
		return "", fmt.Errorf("%w: a run must have a name", store.ErrMalformed)
	}
	return subject(segmentRoot, tenant, host, run)
}

// subject appends names to root.
func subject(root string, names ...string) (string, error) {
	for i, name := range names {
		t, ok := token(name)
		if !ok {
			return "", fmt.Errorf("%w: invalid name %.40q", store.ErrMalformed, name)
		}
		if i > 0 {
			root += "."
		}
		root += t
	}
	return root, nil
}

// token returns a name in the encoding of a subject.
func token(name string) (string, bool) {
	if name == "" {
		return "_", true
	}
	valid := func(r rune) bool {
		return r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if name == "." || strings.ContainsFunc(name, func(r rune) bool { return !valid(r) }) {
		return "", false
	}
	return escaper.Replace(name), true
}

var (
	escaper   = strings.NewReplacer(".", "_", "_", "=")
	unescaper = strings.NewReplacer("_", ".", "=", "_")
)

// names returns the names in a subject below root.
func names(root, subject string, count int) ([]string, error) {
	rest, ok := strings.CutPrefix(subject, root)
	tokens := strings.Split(rest, ".")
	if !ok || len(tokens) != count {
		return nil, fmt.Errorf("%w: subject %.200q is not one of %s", store.ErrMalformed, subject, root)
	}
	for i, t := range tokens {
		if t == "_" {
			tokens[i] = ""
		} else {
			tokens[i] = unescaper.Replace(t)
		}
		if again, ok := token(tokens[i]); !ok || again != t {
			return nil, fmt.Errorf("%w: subject %.200q has no name", store.ErrMalformed, subject)
		}
	}
	return tokens, nil
}

// messageID identifies a message's contents, for the server to drop duplicates. A closing manifest has no records and so
// no root; its digest is used instead, which no other client can predict.
func messageID(seg store.Segment) string {
	if len(seg.Frames) == 0 {
		return fmt.Sprintf("%s:manifest-%d:%x", seg.Run, seg.Index, digest(seg.Manifest))
	}
	return fmt.Sprintf("%s:%d-%d:%x", seg.Run, seg.First, seg.Last, seg.Root)
}
