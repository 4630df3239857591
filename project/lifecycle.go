package project

import (
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/custody-project/custody/state/lifecycle"
)

// lifecycle reads when sandboxes are paused, archived and deleted. "never" is 0.
func (d *decoder) lifecycle(p *lifecycle.Policy, n ast.Node) error {
	chosen := false
	err := d.mapping(n, "lifecycle", fields{
		"pause": func(n ast.Node) error { return d.span(n, "pause", lifecycle.MinPause, true, &p.Pause) },
		"archive": func(n ast.Node) error {
			d.later = append(d.later, func(*File) error {
				if p.Delete == 0 || p.Archive < p.Delete {
					return nil
				}
				return d.err(n, fmt.Sprintf("archive is %s, and the deletion is no later", shown(n)), fmt.Sprintf("give less than %s, or a longer delete: both are after the pause", spanText(p.Delete)))
			})
			return d.span(n, "archive", lifecycle.MinArchive, true, &p.Archive)
		},
		"delete": func(n ast.Node) error {
			chosen = true
			return d.span(n, "delete", lifecycle.MinDelete, true, &p.Delete)
		},
		"keep": func(n ast.Node) error { return d.span(n, "keep", lifecycle.MinDelete, false, &p.Keep) },
	})
	if p.Archive > 0 && !chosen && p.Delete == lifecycle.DefaultDelete {
		p.Delete = lifecycle.ArchiveDelete
	}
	return err
}

// span reads a time that can have days, such as 7d or 1d12h.
func (d *decoder) span(n ast.Node, what string, least time.Duration, never bool, to *time.Duration) error {
	s, ok := n.(*ast.StringNode)
	hint := "write 30m, 12h or 7d"
	if never {
		hint += ", or never"
	}
	if ok && never && s.Value == "never" {
		*to = 0
		return nil
	}
	v := time.Duration(0)
	if ok {
		v, ok = parseSpan(s.Value)
	}
	if !ok {
		return d.err(n, fmt.Sprintf("%s must be a duration with a unit, not %s", what, shown(n)), hint)
	}
	if v < least || v > lifecycle.MaxKeep {
		return d.err(n, fmt.Sprintf("%s is %s", what, shown(n)), fmt.Sprintf("give %s to %s", spanText(least), spanText(lifecycle.MaxKeep)))
	}
	*to = v
	return nil
}

// parseSpan parses a duration that can begin with a number of days.
func parseSpan(text string) (time.Duration, bool) {
	number, rest, found := strings.Cut(text, "d")
	if !found {
		v, err := time.ParseDuration(text)
		return v, err == nil
	}
	if number == "" || len(number) > 4 || strings.Trim(number, "0123456789") != "" {
		return 0, false
	}
	days, err := time.ParseDuration(number + "h")
	v := 24 * days
	if err == nil && rest != "" {
		var more time.Duration
		if more, err = time.ParseDuration(rest); more < 0 || rest[0] == '+' || rest[0] == '-' {
			return 0, false
		}
		v += more
	}
	return v, err == nil
}

// spanText is the text that parseSpan parses; of 0, never.
func spanText(v time.Duration) string {
	days, rest := v/lifecycle.Day, v%lifecycle.Day
	switch {
	case v == 0:
		return "never"
	case days == 0:
		return v.String()
	case rest == 0:
		return fmt.Sprintf("%dd", days)
	}
	return fmt.Sprintf("%dd%v", days, rest)
}

// lifecycle compares when sandboxes are paused, archived and deleted. A pause writes the memory to the host's disk, and an archive sends it elsewhere, so
// a file that adds them asks for more.
func (c *comparison) lifecycle(base, file lifecycle.Policy) {
	c.key(file.Pause == 0 || base.Pause > 0, "lifecycle.pause", spanText(file.Pause), "no pause")
	c.key(file.Archive == 0 || base.Archive > 0, "lifecycle.archive", spanText(file.Archive), "no archive")
	shorter := base.Delete == 0 || file.Delete > 0 && file.Delete <= base.Delete
	c.key(shorter, "lifecycle.delete", spanText(file.Delete), "at most "+spanText(base.Delete))
	c.key(file.Keep <= base.Keep, "lifecycle.keep", spanText(file.Keep), "at most "+spanText(base.Keep))
}
