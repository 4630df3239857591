package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/custody-project/custody/audit"
)

// Head is what a store takes out of a record so that it can be searched.
type Head struct {
	Run      string
	Seq      uint64
	Time     time.Time
	Observer audit.Observer
	Kind     audit.Kind
	Step     string
	Proc     string // uid of the process that the record is about, where there is one
	// What it is about, where it is about such a thing. Head does not say who claims it: Observer does.
	Path   string // of the file, or of the program
	Host   string // name of the other side, lower case and without a final dot, else its address
	Hash   string // SHA-256 of the file's content, hex
	Secret string // name of the credential
	Rule   string // of the finding

	lifecycle *audit.Lifecycle // kind run only
	lost      uint64           // kind gap only
}

// SameColumns reports whether the searchable fields of h and o agree.
func (h Head) SameColumns(o Head) bool {
	return h.Run == o.Run && h.Seq == o.Seq && h.Time.Equal(o.Time) && h.Observer == o.Observer &&
		h.Kind == o.Kind && h.Step == o.Step && h.Proc == o.Proc
}

// ParseHead reads a record's head from its exact bytes. It decodes no more of
// the payload than it needs, and does not object to kinds it does not know.
func ParseHead(body []byte) (Head, error) {
	var r struct {
		Run      string         `json:"run"`
		Seq      uint64         `json:"seq"`
		Time     time.Time      `json:"time"`
		Observer audit.Observer `json:"observer"`
		Kind     audit.Kind     `json:"kind"`
		Step     string         `json:"step"`
		Exec     *procOnly      `json:"exec"`
		Exit     *procOnly      `json:"exit"`
		File     *procOnly      `json:"file"`
		Flow     *procOnly      `json:"flow"`
		Finding  *procOnly      `json:"finding"`
		Gap      *struct {
			Count uint64 `json:"count"`
		} `json:"gap"`
		Lifecycle *audit.Lifecycle `json:"lifecycle"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return Head{}, malformed("record is not readable: %v", err)
	}
	if r.Run == "" || r.Kind == "" {
		return Head{}, malformed("record lacks run or kind")
	}
	if y := r.Time.UTC().Year(); y < 1970 || y > 2261 { // int64 nanoseconds end in 2262
		return Head{}, malformed("record has no usable time: %s", r.Time)
	}
	h := Head{Run: r.Run, Seq: r.Seq, Time: r.Time.UTC(), Observer: r.Observer, Kind: r.Kind, Step: r.Step}
	switch {
	case r.Kind == audit.KindExec && r.Exec != nil:
		h.Proc = r.Exec.Proc
	case r.Kind == audit.KindExit && r.Exit != nil:
		h.Proc = r.Exit.Proc
	case r.Kind == audit.KindFile && r.File != nil:
		h.Proc = r.File.Proc
	case r.Kind == audit.KindFlow && r.Flow != nil:
		h.Proc = r.Flow.Proc
	case r.Kind == audit.KindFinding && r.Finding != nil:
		h.Proc = r.Finding.Proc
	}
	if r.Kind == audit.KindRun && r.Observer == audit.Host { // a guest cannot say how a run ended
		h.lifecycle = r.Lifecycle
	}
	if r.Kind == audit.KindGap && r.Gap != nil {
		h.lost = r.Gap.Count
	}
	return h, nil
}

type procOnly struct {
	Proc string `json:"proc"`
}

// HeadOf reads the head of frame f of the given run and checks that both agree.
func HeadOf(run string, f Frame) (Head, error) {
	h, err := ParseHead(f.Body)
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
