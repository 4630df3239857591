package redteam

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/redteam/simnet"
)

// watch attributes the observations of the simulated internet to probes.
type watch struct {
	net    *simnet.Network
	tokens *regexp.Regexp // matches the token of any probe
}

// reached describes a server that received a probe's data although none was allowed to, or later than cut allows. It
// returns "" if there is none.
func (w *watch) reached(p Probe, cut time.Time) string {
	for _, r := range w.net.Requests() {
		if !strings.Contains(strings.Join([]string{r.URI, r.Host, r.SNI, r.Body}, " "), p.token) {
			continue
		}
		if p.allowed < reaches {
			return fmt.Sprintf("%s was reached: %s %s%s", r.Dst, r.Method, r.Host, r.URI)
		}
		if !cut.IsZero() && r.Time.After(cut.Add(settle)) {
			return fmt.Sprintf("%s was still reached %s after the end", r.Dst, r.Time.Sub(cut).Round(time.Millisecond))
		}
	}
	for _, talk := range w.net.Talks() {
		if p.allowed < reaches && (strings.Contains(talk.SNI, p.token) || bytes.Contains(talk.Said, []byte(p.token))) {
			return fmt.Sprintf("%s received: %.200q", talk.Dst, talk.Said)
		}
	}
	return ""
}

// sightings returns the sightings of a probe: those with its token, and those at its targets.
func (w *watch) sightings(p Probe) []simnet.Sighting {
	var list []simnet.Sighting
	for _, s := range w.net.Seen() {
		if w.made(&p, s) {
			list = append(list, s)
		}
	}
	return list
}

// made reports whether a sighting belongs to a probe. One with a token belongs only to the probe of that token.
func (w *watch) made(p *Probe, s simnet.Sighting) bool {
	if strings.Contains(s.Text, p.token) {
		return true
	}
	if w.tokens.MatchString(s.Text) {
		return false
	}
	to := netip.AddrPortFrom(s.Dst.Addr().Unmap(), s.Dst.Port())
	return slices.ContainsFunc(p.targets, func(t target) bool { return t.is(s.Proto, to) })
}

// seenOutside describes an observation in which find finds something, except at the servers that may receive the secret.
// It returns "" if there is none.
func (w *watch) seenOutside(s secret, find func(text string) string) string {
	for _, r := range w.net.Requests() {
		text := fmt.Sprint(r.SNI, "\n", r.Host, "\n", r.URI, "\n", r.Header, "\n", r.Body)
		if how := find(text); how != "" && !slices.Contains(s.homes, r.SNI) {
			return fmt.Sprintf("at %s, %s: %s %s", r.SNI, r.Dst, r.Method, how)
		}
	}
	for _, talk := range w.net.Talks() {
		if how := find(talk.SNI + "\n" + string(talk.Said)); how != "" && !slices.Contains(s.homes, talk.SNI) {
			return fmt.Sprintf("at %s, %s: %s", talk.SNI, talk.Dst, how)
		}
	}
	for _, q := range w.net.Queries() {
		if how := find(q.Name); how != "" {
			return "in a DNS query: " + q.Name
		}
	}
	for _, at := range w.net.Seen() {
		if how := find(at.Text); how != "" {
			return at.String()
		}
	}
	return ""
}
