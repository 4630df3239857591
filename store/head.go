package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Head has the searchable fields of a record. Of an
// erased record there are only Run, Seq and Time.
type Head struct {
	Run      string
	Seq      uint64
	Time     time.Time
	Observer audit.Observer
	Kind     audit.Kind
	Step     string
	Proc     string // uid of the process that caused the record, if any
	// The subject of the event, if any. Its observer is in Observer.
	Path   string // of the file or the program; of a note, the run
	Host   string // name of the remote host, lower case and without a final dot, or else its address
	Hash   string // SHA-256 of the file's content, hex
	Secret string // name of the credential
	Rule   string // of the finding

	lifecycle *audit.Lifecycle // kind run only
	lost      uint64           // kind gap only
}

// SameColumns reports whether the searchable fields of h and o are equal.
func (h Head) SameColumns(o Head) bool {
	return h.Run == o.Run && h.Seq == o.Seq && h.Time.Equal(o.Time) && h.Observer == o.Observer &&
		h.Kind == o.Kind && h.Step == o.Step && h.Proc == o.Proc && h.Path == o.Path && h.Host == o.Host &&
		h.Hash == o.Hash && h.Secret == o.Secret && h.Rule == o.Rule
}

// Differing names the searchable fields that differ between h and o.
func (h Head) Differing(o Head) (names []string) {
	for _, f := range []struct {
		name string
		same bool
	}{
		{"run", h.Run == o.Run}, {"seq", h.Seq == o.Seq}, {"time", h.Time.Equal(o.Time)}, {"observer", h.Observer == o.Observer},
		{"kind", h.Kind == o.Kind}, {"step", h.Step == o.Step}, {"proc", h.Proc == o.Proc}, {"path", h.Path == o.Path},
		{"host", h.Host == o.Host}, {"hash", h.Hash == o.Hash}, {"secret", h.Secret == o.Secret}, {"rule", h.Rule == o.Rule},
	} {
		if !f.same {
			names = append(names, f.name)
		}
	}
	return names
}

// ParseHead parses a record's head from its exact bytes. It decodes no more of
// the payload than necessary, and accepts unknown kinds. Its
// results are those of encoding/json for any input.
func ParseHead(body []byte) (Head, error) { return parseHead(body, "") }

func parseHead(body []byte, run string) (Head, error) {
	if h, ok := scanHead(body, run); ok {
		return h, nil
	}
	return decodeHead(body)
}

// decodeHead is ParseHead for any bytes.
func decodeHead(body []byte) (Head, error) {
	var r wireHead
	if err := json.Unmarshal(body, &r); err != nil {
		return Head{}, malformed("record is not readable: %v", err)
	}
	h := Head{Run: r.Run, Seq: r.Seq, Time: r.Time.UTC(), Observer: r.Observer, Kind: r.Kind, Step: r.Step}
	if err := h.check(); err != nil {
		return Head{}, err
	}
	r.payload(&h)
	return h, nil
}

func (h Head) check() error {
	if h.Run == "" || h.Kind == "" {
		return malformed("record lacks run or kind")
	}
	return usable("record", h.Time)
}

// usable reports whether a store can represent t, which is in UTC, in nanoseconds: 63 bits end in 2262.
func usable(what string, t time.Time) error {
	if y := t.Year(); y < 1970 || y > 2261 {
		return malformed("%s has no usable time: %s", what, t)
	}
	return nil
}

// wireHead has the members of audit.Record that a head needs.
type wireHead struct {
	Run      string         `json:"run"`
	Seq      uint64         `json:"seq"`
	Time     time.Time      `json:"time"`
	Observer audit.Observer `json:"observer"`
	Kind     audit.Kind     `json:"kind"`
	Step     string         `json:"step"`
	Exec     *struct {
		Proc string     `json:"proc"`
		Exe  audit.Text `json:"exe"`
	} `json:"exec"`
	Exit *struct {
		Proc string `json:"proc"`
	} `json:"exit"`
	File *struct {
		Proc   string     `json:"proc"`
		Path   audit.Text `json:"path"`
		SHA256 string     `json:"sha256"`
	} `json:"file"`
	Flow *struct {
		Proc  string     `json:"proc"`
		DstIP string     `json:"dst_ip"`
		Name  audit.Text `json:"name"`
	} `json:"flow"`
	DNS *struct {
		Name audit.Text `json:"name"`
	} `json:"dns"`
	HTTP *struct {
		Host       audit.Text `json:"host"`
		Credential string     `json:"credential"`
	} `json:"http"`
	LLM *struct {
		Host audit.Text `json:"host"`
	} `json:"llm"`
	Secret *struct {
		Name string     `json:"name"`
		Host audit.Text `json:"host"`
	} `json:"secret"`
	Finding *struct {
		Proc   string `json:"proc"`
		Rule   string `json:"rule"`
		Secret string `json:"secret"`
	} `json:"finding"`
	Note *struct {
		About string `json:"about"`
	} `json:"note"`
	Gap *struct {
		Count uint64 `json:"count"`
	} `json:"gap"`
	Lifecycle *audit.Lifecycle `json:"lifecycle"`
}

// payload copies fields of the payload of its kind to h; it ignores other payloads.
func (r *wireHead) payload(h *Head) {
	switch {
	case r.Kind == audit.KindExec && r.Exec != nil:
		h.Proc, h.Path = r.Exec.Proc, string(r.Exec.Exe)
	case r.Kind == audit.KindExit && r.Exit != nil:
		h.Proc = r.Exit.Proc
	case r.Kind == audit.KindFile && r.File != nil:
		h.Proc, h.Path, h.Hash = r.File.Proc, string(r.File.Path), r.File.SHA256
	case r.Kind == audit.KindFlow && r.Flow != nil:
		h.Proc, h.Host = r.Flow.Proc, hostOf(string(r.Flow.Name), r.Flow.DstIP)
	case r.Kind == audit.KindDNS && r.DNS != nil:
		h.Host = HostName(string(r.DNS.Name))
	case r.Kind == audit.KindHTTP && r.HTTP != nil:
		h.Host, h.Secret = HostName(string(r.HTTP.Host)), r.HTTP.Credential
	case r.Kind == audit.KindLLM && r.LLM != nil:
		h.Host = HostName(string(r.LLM.Host))
	case r.Kind == audit.KindSecret && r.Secret != nil:
		h.Secret, h.Host = r.Secret.Name, HostName(string(r.Secret.Host))
	case r.Kind == audit.KindFinding && r.Finding != nil:
		h.Proc, h.Rule, h.Secret = r.Finding.Proc, r.Finding.Rule, r.Finding.Secret
	case r.Kind == audit.KindNote && r.Note != nil:
		h.Path = r.Note.About
	case r.Kind == audit.KindGap && r.Gap != nil:
		h.lost = r.Gap.Count
	case r.Kind == audit.KindRun && r.Observer == audit.Host: // a guest's claim does not determine how a run ended
		h.lifecycle = r.Lifecycle
	}
}

// HostName returns a host name in the form of Head: ASCII letters in lower
// case, without the final dot of the root (RFC 4343, RFC 1034 section 3.1).
func HostName(name string) string {
	name = strings.TrimSuffix(name, ".")
	for i := range len(name) {
		if 'A' <= name[i] && name[i] <= 'Z' {
			return lower(name)
		}
	}
	return name
}

// lower keeps bytes that are not ASCII; strings.ToLower changes those that are not UTF-8.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func hostOf(name, address string) string {
	if name = HostName(name); name != "" {
		return name
	}
	return HostName(address)
}

// HeadOf parses the head of frame f of the given run and checks that both agree.
func HeadOf(run string, f Frame) (Head, error) {
	h, err := parseHead(f.Body, run)
	if err != nil {
		return h, fmt.Errorf("seq %d: %w", f.Seq, err)
	}
	if h.Run != run || h.Seq != f.Seq {
		return h, malformed("record says run %.40q seq %d, its frame run %.40q seq %d", h.Run, h.Seq, run, f.Seq)
	}
	return h, nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}
