package report

import "github.com/custody-project/custody/audit"

// looks is what both queries about access count.
type looks struct {
	cites
	who, actions tallies
	times        uint64
}

func (q *looks) take(r *record) {
	if q.who == nil {
		q.who, q.actions = tallies{}, tallies{}
	}
	q.add(r)
	q.times += max(r.Access.Count, 1)
	q.who.add(r.Access.Who, 1)
	q.actions.add(r.Access.Action, 1)
}

func (q *looks) end(*source) {}

// access tells who looked.
type access struct{ looks }

func newAccess() *access { return &access{} }

func (q *access) see(r *record) {
	if r.host(audit.KindAccess) && !r.foreign && r.Access.Verdict != audit.Deny {
		q.take(r)
	}
}

func (q *access) claims() []Claim {
	if q.n == 0 {
		return []Claim{none("no look through the API at what this report is about")}
	}
	return []Claim{q.claim(Supports, ByHost, "Recorded through the API, each before anything was shown, with who, from where and what: %s (%s) by %s (%s).",
		count(q.n, "look"), q.actions, count(len(q.who), "principal"), some(q.who.names()))}
}

// refused tells who was refused.
type refused struct{ looks }

func newRefused() *refused { return &refused{} }

func (q *refused) see(r *record) {
	if r.host(audit.KindAccess) && !r.foreign && r.Access.Verdict == audit.Deny {
		q.take(r)
	}
}

func (q *refused) claims() []Claim {
	if q.n == 0 {
		return []Claim{none("no request to the API was refused")}
	}
	return []Claim{q.claim(Supports, ByHost, "Refused by the API and recorded: %s in %s (%s) by %s (%s).",
		count(q.times, "attempt"), count(q.n, "record"), q.actions, count(len(q.who), "principal"), some(q.who.names()))}
}
