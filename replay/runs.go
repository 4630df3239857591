package replay

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/custody-project/custody/store"
)

// Runs writes runs as a table in the order given. now, for how long the
// running ones have been at it, is the caller's clock.
func Runs(w io.Writer, runs []store.Run, now time.Time, opt Options) error {
	out := bufio.NewWriter(w)
	idWidth, projectWidth := len("RUN"), len("PROJECT")
	for _, r := range runs {
		idWidth = max(idWidth, min(textWidth(escape(r.ID)), 40))
		projectWidth = max(projectWidth, min(textWidth(escape(r.Project)), 20))
	}
	started, startWidth := "STARTED (UTC)", len(stampLayout)
	if layout := opt.zoned(stampLayout); layout != stampLayout {
		started = "STARTED"
		for _, r := range runs {
			startWidth = max(startWidth, len(opt.stamp(r.Start, layout)))
		}
	}
	l := newLine(out, opt)
	for _, c := range []struct {
		name  string
		width int
	}{{"RUN", idWidth}, {"PROJECT", projectWidth}, {started, startWidth}, {"LENGTH", 8}, {"STATUS", 11},
		{"EXIT", 5}, {"TIER", 11}, {"EVENTS", 7}} {
		l.cell(dim, c.name, c.width)
	}
	l.put(dim, "NOTES")
	l.end()
	for _, r := range runs {
		l.cell(bold, escape(r.ID), idWidth)
		l.cell(plain, escape(r.Project), projectWidth)
		l.cell(plain, opt.stamp(r.Start, opt.zoned(stampLayout)), startWidth)
		runRest(l, r, now, opt.markRun(r))
		l.end()
	}
	return out.Flush()
}

func runRest(l *line, r store.Run, now time.Time, mark store.Mark) {
	length := r.DurationNS
	if r.End == nil {
		length = int64(now.Sub(r.Start))
	}
	l.cell(plain, duration(length), 8)
	l.cell(statusStyle(r.Status), escape(string(r.Status)), 11)
	exit, mood := "-", dim
	if r.ExitCode != nil {
		exit, mood = strconv.Itoa(*r.ExitCode), exitMood(*r.ExitCode)
	}
	l.cell(mood, exit, 5)
	l.cell(plain, escape(r.Tier), 11)
	l.cell(plain, strconv.FormatUint(r.Events, 10), 7)
	if s, word := markWord(mark); word != "" {
		l.put(s, word+": "+escape(mark.Text))
		l.put(plain, " ")
	}
	if r.Findings > 0 {
		l.put(alarm, plural(r.Findings, "finding"))
		l.put(plain, " ")
	}
	if r.Gaps > 0 {
		l.put(alarm, plural(r.Gaps, "gap")+", "+plural(r.Lost, "event")+" lost")
	}
}

func statusStyle(s store.Status) style {
	switch s {
	case store.Sealed:
		return green
	case store.Running:
		return cyan
	}
	return yellow
}

// RunsJSON writes one JSON object a run and line, with its mark as "verification" where opt has MarkRun.
func RunsJSON(w io.Writer, runs []store.Run, opt Options) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for _, r := range runs {
		line := struct {
			store.Run
			Mark *store.Mark `json:"verification,omitempty"`
		}{Run: r}
		if opt.MarkRun != nil {
			mark := opt.MarkRun(r)
			line.Mark = &mark
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return out.Flush()
}
