package replay

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"syscall"

	"github.com/custody-project/custody/audit"
)

const (
	maxListed = 8  // addresses or names of one answer that a line shows
	maxRules  = 20 // of a policy that are shown; --json has all
)

// flow shows a guest's attempt, or what an enforcer did with a flow. The
// process of a flow that the host observed is marked as a claim of the guest.
func (d *describer) flow(r audit.Record) entry {
	f := r.Flow
	e := entry{pid: shortPID(f.PID, f.Proc), result: escape(string(f.State)), mood: magenta}
	if f.State == audit.FlowDeny || f.State == audit.FlowRevoke {
		e.mood = red
	}
	if f.DurationNS > 0 {
		e.length = duration(f.DurationNS)
	}
	e.add(plain, strings.TrimPrefix(escape(f.Proto)+" "+destination(f), " "))
	switch errno := syscall.Errno(f.Errno); {
	case errno == syscall.EINPROGRESS:
		e.add(dim, "  goes on in the background")
	case f.Errno != 0:
		e.add(red, fmt.Sprintf("  failed: %s (errno %d)", escape(errno.Error()), f.Errno))
	}
	if r.Observer != audit.Host || f.State == audit.FlowAttempt {
		return e
	}
	e.pid = ""
	e.enforced(f)
	if by := d.index.by(f, r.Time); by != "" {
		d.by(&e, by)
	}
	e.why(f.Rule, f.Generation)
	if f.DNSSeq != 0 {
		e.add(dim, "  dns seq "+strconv.FormatUint(f.DNSSeq, 10))
	}
	if f.Peer != "" {
		e.add(dim, "  peer "+escape(f.Peer))
	}
	if f.ID != "" {
		e.add(dim, "  flow "+escape(f.ID))
	}
	return e
}

// by shows the process that made a connection.
func (d *describer) by(e *entry, name string) {
	e.add(plain, "  by "+name)
	if !d.index.byHost {
		e.add(dim, ", the guest says")
	}
}

// enforced shows the details that only an enforcer reports.
func (e *entry) enforced(f *audit.Flow) {
	if f.SNI != "" {
		e.add(red, "  asked for "+quote(f.SNI))
	}
	if f.Reason != "" {
		e.add(e.mood, "  "+escape(f.Reason))
	}
	if f.Count > 1 {
		e.add(red, fmt.Sprintf("  %d times", f.Count))
	}
	if f.PacketsOut+f.PacketsIn+f.BytesOut+f.BytesIn > 0 {
		e.add(plain, fmt.Sprintf("  out %s (%s), in %s (%s)", bytesOf(f.BytesOut), plural(f.PacketsOut, "packet"),
			bytesOf(f.BytesIn), plural(f.PacketsIn, "packet")))
	}
}

// why shows what a verdict rests on.
func (e *entry) why(rule string, generation uint32) {
	if rule == "" {
		return
	}
	e.add(dim, "  rule "+escape(rule))
	if generation > 1 { // the first is what the run began with
		e.add(dim, fmt.Sprintf(" (generation %d)", generation))
	}
}

// destination is a flow's, by name where there is one.
func destination(f *audit.Flow) string {
	addr := escape(f.DstIP)
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	port := ""
	if f.DstPort != 0 {
		port = ":" + strconv.Itoa(f.DstPort)
	}
	switch {
	case f.Name == "" && addr == "": // denials that were put together
		return "further packets"
	case f.Name == "":
		return addr + port
	case addr == "":
		return quote(f.Name) + port
	}
	return quote(f.Name) + port + " (" + addr + ")"
}

func bytesOf(n uint64) string { return size(int64(min(n, math.MaxInt64))) }

// verdict formats a decision of an enforcer.
func verdict(v audit.Verdict) entry {
	e := entry{result: escape(string(v)), mood: green}
	if v != audit.Allow {
		e.mood = red
	}
	return e
}

func dns(d *audit.DNS) entry {
	e := verdict(d.Verdict)
	if d.LatencyNS > 0 {
		e.length = duration(d.LatencyNS)
	}
	e.add(plain, escape(d.Type)+" "+quote(d.Name)+" -> "+answer(d))
	if d.Synthetic {
		e.add(dim, " (stands for the name)")
	}
	if d.Reason != "" {
		e.add(e.mood, "  "+escape(d.Reason))
	}
	if len(d.Dropped) > 0 {
		e.add(yellow, map[bool]string{true: "  not given to the guest: ", false: "  not used: "}[asked(d)]+listed(d.Dropped))
	}
	if len(d.Chain) > 0 {
		names := make([]string, len(d.Chain))
		for i, n := range d.Chain {
			names[i] = quote(n)
		}
		e.add(plain, "  by way of "+listed(names))
	}
	e.why(d.Rule, d.Generation)
	for _, f := range []struct {
		is   bool
		text string
	}{
		{!asked(d), "resolved by the gateway"},
		{d.TTL > 0, fmt.Sprintf("ttl %ds", d.TTL)},
		{d.Upstream != "", "from " + d.Upstream},
		{d.Cached, "cached"},
		{d.Proto == "tcp", "over TCP"},
	} {
		if f.is {
			e.add(dim, "  "+escape(f.text))
		}
	}
	return e
}

// asked reports whether the guest asked, and not the gateway on its behalf: a
// question of the guest's came over UDP or TCP.
func asked(d *audit.DNS) bool { return d.Proto != "" }

// answer is the answer that the guest got.
func answer(d *audit.DNS) string {
	switch {
	case len(d.Answers) > 0:
		return listed(d.Answers)
	case d.RCode == "NOERROR":
		return "no address"
	}
	return escape(orUnknown(d.RCode))
}

func listed(items []string) string {
	more := ""
	if n := len(items) - maxListed; n > 0 {
		items, more = items[:maxListed], fmt.Sprintf(" and %d more", n)
	}
	return escape(strings.Join(items, ", ")) + more
}

func (d *describer) http(h *audit.HTTP) entry {
	e := verdict(h.Verdict)
	if h.Status != 0 {
		e.result = strconv.Itoa(h.Status)
	}
	if h.Verdict == audit.Allow && h.Status >= 400 {
		e.mood = yellow
	}
	if h.DurationNS > 0 {
		e.length = duration(h.DurationNS)
	}
	if h.Method+h.Host+h.Path == "" {
		e.add(plain, "a request that could not be read")
	} else {
		e.add(bold, quote(h.Method))
		e.add(plain, " "+quote(h.Host)+" "+quote(h.Path))
	}
	if h.Reason != "" {
		e.add(e.mood, "  "+escape(h.Reason))
	}
	if h.BytesOut > 0 || h.BytesIn > 0 {
		e.add(plain, fmt.Sprintf("  out %s, in %s", size(h.BytesOut), size(h.BytesIn)))
	}
	if a, found := d.index.joins.ofID(h.Flow); found {
		d.by(&e, a.by.String())
	}
	e.why(h.Rule, h.Generation)
	for _, f := range []struct{ name, value string }{{"", h.Proto}, {"flow ", h.Flow}} {
		if f.value != "" {
			e.add(dim, "  "+f.name+escape(f.value))
		}
	}
	return e
}

func (d *describer) policy(c *audit.Policy) entry {
	e := entry{result: "in force", mood: yellow}
	e.add(bold, fmt.Sprintf("generation %d", c.Generation))
	e.add(plain, "  "+d.policyDigest(c.Digest))
	if c.Previous != "" {
		e.add(dim, "  instead of "+d.policyDigest(c.Previous))
	}
	if len(c.Rules) == 0 {
		e.add(plain, "  allows nothing")
	}
	for i, rule := range c.Rules {
		if i == maxRules {
			e.more = append(e.more, fmt.Sprintf("| and %d more", len(c.Rules)-i))
			break
		}
		e.more = append(e.more, "| "+escape(string(rule)))
	}
	return e
}

func (d *describer) policyDigest(digest string) string {
	hex, prefixed := strings.CutPrefix(digest, "sha256-")
	if !prefixed {
		return d.digest(digest)
	}
	return "sha256-" + d.digest(hex)
}

// controls is how the names of probes begin that must get through: without them,
// that all others are blocked would prove nothing.
const controls = "control/"

func probe(b *audit.Probe) entry {
	e := entry{result: "blocked", mood: green}
	control := strings.HasPrefix(b.Name, controls)
	if control {
		e.result = "passed"
	}
	if b.Blocked == control {
		e.result, e.mood = map[bool]string{true: "STOPPED", false: "GOT OUT"}[control], alarm
		e.add(alarm, "!! ")
	}
	name := escape(b.Name)
	if b.Family != "" {
		name += " over " + escape(b.Family)
	}
	e.add(plain, name)
	switch {
	case b.Recorded && b.Seq != 0:
		e.add(dim, fmt.Sprintf("  recorded: run %s, seq %d", escape(b.Run), b.Seq))
	case b.Recorded:
		e.add(dim, "  recorded: run "+escape(b.Run))
	default:
		e.add(alarm, "  NOT RECORDED")
	}
	if b.Detail != "" {
		e.add(plain, "  "+escape(string(b.Detail)))
	}
	return e
}
