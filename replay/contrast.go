package replay

import (
	"cmp"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Comparison is in what two runs differ.
type Comparison struct {
	A     store.Run `json:"a"`
	B     store.Run `json:"b"`
	OnlyA Traits    `json:"only_a"`
	OnlyB Traits    `json:"only_b"`
	Both  Common    `json:"both"`
}

// Traits are what one run did and another did not, in order of what they are about.
type Traits struct {
	Programs []Program      `json:"programs"`
	Files    []FileTrait    `json:"files"`
	Hosts    []HostTrait    `json:"hosts"`
	Secrets  []SecretTrait  `json:"secrets"`
	Findings []FindingTrait `json:"findings"`
}

// Common is how much both runs did.
type Common struct {
	Programs int `json:"programs"`
	Files    int `json:"files"`
	Hosts    int `json:"hosts"`
	Secrets  int `json:"secrets"`
	Findings int `json:"findings"`
}

// Program is a command line, as the guest claims it. Seq is that of its first exec.
type Program struct {
	Argv  []audit.Text `json:"argv"`
	Exe   audit.Text   `json:"exe"`
	Count int          `json:"count"`
	Seq   uint64       `json:"seq"`
}

// FileTrait is a file as a run left it, as the guest claims it.
type FileTrait struct {
	Path    audit.Text `json:"path"`
	SHA256  string     `json:"sha256,omitempty"`
	Size    int64      `json:"size"`
	Deleted bool       `json:"deleted,omitempty"`
	Seq     uint64     `json:"seq"`
}

// HostTrait is another side, as the host saw it: what of it was let through and what was denied.
type HostTrait struct {
	Name    audit.Text    `json:"name"`
	Port    int           `json:"port,omitempty"`
	Verdict audit.Verdict `json:"verdict"`
	Count   int           `json:"count"`
	Seq     uint64        `json:"seq"`
}

// SecretTrait is a credential that a step held.
type SecretTrait struct {
	Step string `json:"step"`
	Name string `json:"name"`
	Uses int    `json:"uses"`
	Seq  uint64 `json:"seq"`
}

// FindingTrait is a finding. Seq is that of its record, or of what it rests on.
type FindingTrait struct {
	Rule   string `json:"rule"`
	Detail string `json:"detail"`
	Count  int    `json:"count"`
	Seq    uint64 `json:"seq"`
}

// Compare returns in what two runs differ: by command line, by path and hash of
// what was written, by host, port and verdict, by credential and step, by finding.
func Compare(a, b *Story) Comparison {
	c := Comparison{A: a.Run(), B: b.Run()}
	c.OnlyA.Programs, c.OnlyB.Programs, c.Both.Programs = apart(a.Processes().programs(), b.Processes().programs(), func(p Program) string { return argvKey(p) })
	c.OnlyA.Files, c.OnlyB.Files, c.Both.Files = apart(a.Files().left(), b.Files().left(), func(f FileTrait) FileTrait {
		f.Seq = 0
		return f
	})
	type host struct {
		name    audit.Text
		port    int
		verdict audit.Verdict
	}
	c.OnlyA.Hosts, c.OnlyB.Hosts, c.Both.Hosts = apart(a.Connections().hosts(), b.Connections().hosts(), func(h HostTrait) host { return host{h.Name, h.Port, h.Verdict} })
	c.OnlyA.Secrets, c.OnlyB.Secrets, c.Both.Secrets = apart(a.Credentials().held(), b.Credentials().held(), func(s SecretTrait) heldKey { return heldKey{s.Step, s.Name} })
	c.OnlyA.Findings, c.OnlyB.Findings, c.Both.Findings = apart(a.Findings().distinct(), b.Findings().distinct(), func(f FindingTrait) [2]string { return [2]string{f.Rule, f.Detail} })
	return c
}

// apart returns what only one of two lists has, and how much both have.
func apart[T any, K comparable](a, b []T, key func(T) K) (onlyA, onlyB []T, both int) {
	has := func(list []T) map[K]bool {
		m := map[K]bool{}
		for _, t := range list {
			m[key(t)] = true
		}
		return m
	}
	inA, inB := has(a), has(b)
	onlyA, onlyB = []T{}, []T{}
	for _, t := range a {
		if inB[key(t)] {
			both++
		} else {
			onlyA = append(onlyA, t)
		}
	}
	for _, t := range b {
		if !inA[key(t)] {
			onlyB = append(onlyB, t)
		}
	}
	return onlyA, onlyB, both
}

// tally is a list in which equal things are one.
type tally[T any, K comparable] struct {
	list []T
	at   map[K]int
}

func newTally[T any, K comparable]() tally[T, K] { return tally[T, K]{[]T{}, map[K]int{}} }

// of returns the place of what has that key, and puts first there if there is none yet.
func (t *tally[T, K]) of(key K, first T) *T {
	i, known := t.at[key]
	if !known {
		i = len(t.list)
		t.at[key] = i
		t.list = append(t.list, first)
	}
	return &t.list[i]
}

func argvKey(p Program) string {
	var b strings.Builder
	b.WriteString(string(p.Exe))
	for _, a := range p.Argv { // no argument has a NUL
		b.WriteByte(0)
		b.WriteString(string(a))
	}
	return b.String()
}

// programs returns the run's command lines, in order.
func (x Processes) programs() []Program {
	t := newTally[Program, string]()
	for _, p := range x.All() {
		first := Program{Argv: p.Argv, Exe: p.Exe, Seq: p.Seq}
		t.of(argvKey(first), first).Count++
	}
	slices.SortStableFunc(t.list, func(a, b Program) int { return cmp.Compare(argvKey(a), argvKey(b)) })
	return t.list
}

// left returns the files that the run wrote or deleted, as it left them, by path.
func (x Files) left() []FileTrait {
	list := []FileTrait{}
	for _, f := range x.All() {
		if f.Written || f.Deleted {
			list = append(list, FileTrait{Path: f.Path, SHA256: f.SHA256, Size: f.Size, Deleted: f.Deleted || f.MovedTo != "", Seq: f.Seq})
		}
	}
	return list
}

// hosts returns the other sides that the host saw, by name, port and verdict.
func (x Connections) hosts() []HostTrait {
	type key struct {
		name    audit.Text
		port    int
		verdict audit.Verdict
	}
	t := newTally[HostTrait, key]()
	for _, c := range x.All() {
		if c.Observer == audit.Host && c.Name != "" {
			name := audit.Text(store.HostName(string(c.Name)))
			t.of(key{name, c.DstPort, c.Verdict}, HostTrait{Name: name, Port: c.DstPort, Verdict: c.Verdict, Seq: c.Seq}).Count++
		}
	}
	slices.SortStableFunc(t.list, func(a, b HostTrait) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Verdict, b.Verdict))
	})
	return t.list
}

// held returns the credentials that each step held, by step and name.
func (x Credentials) held() []SecretTrait {
	t := newTally[SecretTrait, heldKey]()
	for _, c := range x.All() {
		t.of(heldKey{c.Step, c.Name}, SecretTrait{Step: c.Step, Name: c.Name, Seq: c.Seq}).Uses += len(c.Uses)
	}
	slices.SortStableFunc(t.list, func(a, b SecretTrait) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Name, b.Name)) })
	return t.list
}

// distinct returns the findings, those of one rule with one detail as one.
func (x Findings) distinct() []FindingTrait {
	t := newTally[FindingTrait, [2]string]()
	for _, f := range x.All() {
		first := FindingTrait{Rule: string(f.Rule), Detail: f.Detail, Seq: f.Seq}
		if f.Seq == 0 && len(f.Evidence) > 0 {
			first.Seq = f.Evidence[0]
		}
		t.of([2]string{string(f.Rule), f.Detail}, first).Count++
	}
	slices.SortStableFunc(t.list, func(a, b FindingTrait) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Detail, b.Detail))
	})
	return t.list
}
