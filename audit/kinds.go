package audit

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// KindInfo describes a kind of event: one entry in the table of kinds. Tests compare every other list of kinds with the
// table; CONTRIBUTING.md describes how to add an entry.
type KindInfo struct {
	Kind Kind
	// Payload is the JSON name of the field of Event that holds the payload.
	Payload string
	// Observers are those that may record the kind.
	Observers []Observer
	// Columns are the fields of the payload that stores make searchable.
	Columns []ColumnField
	// Severity of an event of the kind with nothing unusual in its payload.
	Severity Severity
	// AccessLog is set for kinds that occur in access logs only, which are separate runs.
	AccessLog bool
	// Text describes an event of the kind, in one line.
	Text string
}

// Column is a searchable column of a store's table of records.
type Column string

// The searchable columns that payloads fill. Address fills the column host where the payload has no host name.
const (
	ColumnProc    Column = "proc"
	ColumnPath    Column = "path"
	ColumnHost    Column = "host"
	ColumnAddress Column = "address"
	ColumnHash    Column = "hash"
	ColumnSecret  Column = "secret"
	ColumnRule    Column = "rule"
)

// ColumnField is a field of a payload, by its JSON name, with the column that it fills.
type ColumnField struct {
	Field  string
	Column Column
}

var (
	byHost = []Observer{Host}
	byBoth = []Observer{Guest, Host}
)

// kinds is the table. It is immutable.
var kinds = []KindInfo{
	{Kind: KindRun, Payload: "lifecycle", Observers: byHost, Severity: SeverityInfo, Text: "the start or the end of a run"},
	{Kind: KindStep, Payload: "lifecycle", Observers: byHost, Severity: SeverityInfo, Text: "the start or the end of a step"},
	{Kind: KindExec, Payload: "exec", Observers: byBoth, Severity: SeverityInfo,
		Columns: []ColumnField{{"proc", ColumnProc}, {"exe", ColumnPath}},
		Text:    "a program was started: a successful execve(2)"},
	{Kind: KindExit, Payload: "exit", Observers: byBoth, Severity: SeverityInfo,
		Columns: []ColumnField{{"proc", ColumnProc}},
		Text:    "the end of a process that had an exec; the host writes it where the guest reported none"},
	{Kind: KindFile, Payload: "file", Observers: byBoth, Severity: SeverityInfo,
		Columns: []ColumnField{{"proc", ColumnProc}, {"path", ColumnPath}, {"sha256", ColumnHash}},
		Text:    "a file or directory was created, written, read, renamed or deleted"},
	{Kind: KindFlow, Payload: "flow", Observers: byBoth, Severity: SeverityInfo,
		Columns: []ColumnField{{"proc", ColumnProc}, {"name", ColumnHost}, {"dst_ip", ColumnAddress}},
		Text:    "a network connection: the guest reports the attempt, the host what was enforced"},
	{Kind: KindInbound, Payload: "inbound", Observers: byHost, Severity: SeverityInfo,
		Text: "a connection that a caller made to a TCP port of the sandbox, through the API"},
	{Kind: KindDNS, Payload: "dns", Observers: byHost, Severity: SeverityInfo,
		Columns: []ColumnField{{"name", ColumnHost}},
		Text:    "a DNS query to the sandbox's resolver, and its answer"},
	{Kind: KindHTTP, Payload: "http", Observers: byHost, Severity: SeverityInfo,
		Columns: []ColumnField{{"host", ColumnHost}, {"credential", ColumnSecret}},
		Text:    "an HTTP request through the gateway"},
	{Kind: KindLLM, Payload: "llm", Observers: byHost, Severity: SeverityInfo,
		Columns: []ColumnField{{"host", ColumnHost}},
		Text:    "an LLM API call through the gateway"},
	{Kind: KindPolicy, Payload: "policy", Observers: byHost, Severity: SeverityNotice, Text: "the egress policy in force from here on"},
	{Kind: KindProbe, Payload: "probe", Observers: byHost, Severity: SeverityInfo, Text: "an attempt of the red team's to escape, and its result"},
	{Kind: KindOutput, Payload: "output", Observers: byHost, Severity: SeverityInfo, Text: "a piece of the output of a step"},
	{Kind: KindVM, Payload: "vm", Observers: byHost, Severity: SeverityInfo, Text: "an operation on the VM"},
	{Kind: KindCopy, Payload: "copy", Observers: byHost, Severity: SeverityInfo, Text: "files that were copied into or out of the sandbox"},
	{Kind: KindSecret, Payload: "secret", Observers: byHost, Severity: SeverityInfo,
		Columns: []ColumnField{{"name", ColumnSecret}, {"host", ColumnHost}},
		Text:    "an operation on a credential"},
	{Kind: KindGap, Payload: "gap", Observers: byBoth, Severity: SeverityWarning, Text: "a known loss of events, hashes or output"},
	{Kind: KindFinding, Payload: "finding", Observers: byHost, Severity: SeverityError,
		Columns: []ColumnField{{"proc", ColumnProc}, {"rule", ColumnRule}, {"secret", ColumnSecret}},
		Text:    "something that a reviewer should look at"},
	{Kind: KindAccess, Payload: "access", Observers: byHost, Severity: SeverityInfo, AccessLog: true,
		Text: "an access to records through the API, or a refused one, or a change of a registered project"},
	{Kind: KindNote, Payload: "note", Observers: byHost, Severity: SeverityInfo, AccessLog: true,
		Columns: []ColumnField{{"about", ColumnPath}},
		Text:    "a note on a run or on a record of it"},
}

// KindTable returns the table of the kinds that this version writes. The caller may change the list, not what its entries point to.
func KindTable() []KindInfo { return slices.Clone(kinds) }

// Kinds returns all kinds that this version writes, in the order of the table.
func Kinds() []Kind {
	list := make([]Kind, len(kinds))
	for i := range kinds {
		list[i] = kinds[i].Kind
	}
	return list
}

// Info returns k's entry in the table; ok is false where this version does not know k.
func (k Kind) Info() (info KindInfo, ok bool) {
	for i := range kinds {
		if kinds[i].Kind == k {
			return kinds[i], true
		}
	}
	return KindInfo{}, false
}

// Known reports whether this version writes such records; a newer one may write others.
func (k Kind) Known() bool {
	_, ok := k.Info()
	return ok
}

// InAccessLog reports whether records of the kind occur in access logs only.
func (k Kind) InAccessLog() bool {
	info, _ := k.Info()
	return info.AccessLog
}

// ObservedBy reports whether o may record events of the kind k.
func (k Kind) ObservedBy(o Observer) bool {
	info, _ := k.Info()
	return slices.Contains(info.Observers, o)
}

// payloadFields are the places of the payloads in Event, with their JSON names.
var payloadFields = placesOf(reflect.TypeFor[Event]())

type payloadField struct {
	name  string
	place int
}

func placesOf(event reflect.Type) (fields []payloadField) {
	for i := range event.NumField() {
		name, _, _ := strings.Cut(event.Field(i).Tag.Get("json"), ",")
		if slices.ContainsFunc(kinds, func(k KindInfo) bool { return k.Payload == name }) {
			fields = append(fields, payloadField{name, i})
		}
	}
	return fields
}

// field returns the field of e that holds the payload of its kind; ok is false where this version does not know the kind.
func (e *Event) field() (v reflect.Value, ok bool) {
	info, _ := e.Kind.Info()
	i := slices.IndexFunc(payloadFields, func(f payloadField) bool { return f.name == info.Payload })
	if i < 0 {
		return v, false
	}
	return reflect.ValueOf(e).Elem().Field(payloadFields[i].place), true
}

// Payload returns the payload of e's kind, a pointer such as *Exec. It is nil where e has none,
// and where this version does not know the kind.
func (e *Event) Payload() any {
	if p, ok := e.field(); ok && !p.IsNil() {
		return p.Interface()
	}
	return nil
}

// SetPayload gives e a new, empty payload of its kind and returns it; it is nil where this version does not know the kind.
func (e *Event) SetPayload() any {
	p, ok := e.field()
	if !ok {
		return nil
	}
	p.Set(reflect.New(p.Type().Elem()))
	return p.Interface()
}

// DropOthers removes every payload that is not of e's kind.
func (e *Event) DropOthers() {
	info, _ := e.Kind.Info()
	v := reflect.ValueOf(e).Elem()
	for _, f := range payloadFields {
		if f.name != info.Payload {
			v.Field(f.place).SetZero()
		}
	}
}

// OwnPayload returns an error unless e has exactly the payload of its kind, which this version must know.
func (e *Event) OwnPayload() error {
	info, ok := e.Kind.Info()
	if !ok {
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	v := reflect.ValueOf(e).Elem()
	for _, f := range payloadFields {
		if v.Field(f.place).IsNil() == (f.name == info.Payload) {
			return fmt.Errorf("kind %q must have its payload and no other", e.Kind)
		}
	}
	return nil
}

// ParseKinds returns the kinds with these names. The error lists the known ones.
func ParseKinds(names []string) ([]Kind, error) {
	var kinds []Kind
	for _, name := range names {
		if !Kind(name).Known() {
			known := make([]string, len(Kinds()))
			for i, k := range Kinds() {
				known[i] = string(k)
			}
			return nil, fmt.Errorf("%q is not a kind of record: there are %s", name, strings.Join(known, ", "))
		}
		kinds = append(kinds, Kind(name))
	}
	return kinds, nil
}
