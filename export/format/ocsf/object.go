package ocsf

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

// ms writes nanoseconds as milliseconds, rounding non-zero values up to at least 1.
func ms(in wire.Object, key string, ns int64) {
	if ns != 0 {
		in.Int(key, max(ns/1e6, 1))
	}
}

// device writes the sandbox. profile is set if the class has it from the profile host.
func (d *doc) device(profile bool) {
	d.host = d.host || profile
	o := d.w.Root().Obj("device")
	s := or(d.e.Start)
	if s.Tier == "host" { // a run of the red team
		o.Int("type_id", 1)
		o.Const("type", "Server")
	} else {
		o.Int("type_id", 6)
		o.Const("type", "Virtual")
	}
	o.Str("uid", d.e.Run)
	o.StrIf("name", d.e.Run)
	o.StrIf("hypervisor", s.Tier)
	if s.TemplateDigest != "" {
		i := o.Obj("image")
		i.StrIf("name", s.Template)
		i.Str("uid", s.TemplateDigest)
		i.End()
	}
	os := o.Obj("os")
	os.Const("name", "Linux")
	os.Int("type_id", 200)
	os.Const("type", "Linux")
	os.End()
	o.End()
}

// stepActor writes the step of the event, or its run, as the actor.
func stepActor(in wire.Object, e *export.Event, v minor) {
	name := e.Step
	if name == "" {
		name = "custody"
	}
	o := in.Obj("actor")
	if v.has(sinceApplication) {
		a := o.Obj("application")
		a.Str("name", name)
		a.StrIf("uid", e.Run)
		a.End()
	}
	if v.has(sinceAppName) {
		o.Str("app_name", name)
		o.StrIf("app_uid", e.Run)
	} else {
		o.Str("invoked_by", name)
	}
	o.End()
}

// procActor writes the process of the guest, as the guest claims, as the actor.
func procActor(in wire.Object, e *export.Event, v minor, proc string, pid int, parent string) {
	if proc == "" && pid == 0 {
		stepActor(in, e, v)
		return
	}
	o := in.Obj("actor")
	p := o.Obj("process")
	process(p, v, proc, pid, e.Exec)
	if e.Exec == nil && parent != "" {
		pp := p.Obj("parent_process")
		pp.Str("uid", parent)
		pp.End()
	}
	p.End()
	o.End()
}

// process writes the known attributes of a process.
func process(in wire.Object, v minor, proc string, pid int, x *audit.Exec) {
	if pid != 0 || proc == "" {
		in.Int("pid", int64(pid))
	}
	in.StrIf("uid", proc)
	if x == nil {
		return
	}
	program(in, v, x)
	if x.Parent != "" || x.PPID != 0 {
		o := in.Obj("parent_process")
		o.IntIf("pid", int64(x.PPID))
		o.StrIf("uid", x.Parent)
		o.End()
	}
}

// program writes a process's program from an execve.
func program(in wire.Object, v minor, x *audit.Exec) {
	if x.Exe != "" {
		in.Str("name", wire.Base(string(x.Exe)))
		path(in, "file", string(x.Exe), 1)
	}
	in.Command("cmd_line", x.Argv)
	if v.has(sinceWorkingDir) {
		in.StrIf("working_directory", string(x.Cwd))
	}
	o := in.Obj("user")
	o.IntText("uid", int64(x.UID))
	o.End()
}

// path writes a file of which only the path is known. kind is file.type_id.
func path(in wire.Object, key, path string, kind int) {
	o := in.Obj(key)
	pathIn(o, path, kind)
	o.End()
}

func pathIn(in wire.Object, path string, kind int) {
	in.Str("name", wire.Base(path))
	in.StrIf("path", path)
	if dir := wire.Dir(path); dir != "" {
		in.Str("parent_folder", dir)
	}
	in.Int("type_id", int64(kind))
	if kind == 1 {
		in.Const("type", "Regular File")
	} else {
		in.Const("type", "Unknown")
	}
}

// endpoint is one end of a flow.
type endpoint struct {
	ip   string
	port int
	host string
}

// end writes an endpoint of a flow, and reports whether its address and its port are valid; otherwise the caller writes them
// to unmapped. The guest's endpoint without an address is the sandbox; any other has at least an empty name.
func (d *doc) end(key string, p endpoint) (ip, port bool) {
	o := d.w.Root().Obj(key)
	addr, err := netip.ParseAddr(p.ip)
	ip = err == nil && addr.Zone() == ""
	if ip {
		s := p.ip
		if len(s) > 39 {
			s = addr.String()
		}
		o.Str("ip", s)
		d.seen.add(key, "ip", seenIP, s)
	}
	port = p.port >= 0 && p.port <= 65535
	if port && p.port != 0 {
		o.Int("port", int64(p.port))
	}
	switch {
	case p.host == "":
	case d.v.hostname(p.host):
		o.Str("hostname", p.host)
		d.seen.add(key, "hostname", seenHostname, p.host)
	default:
		o.Str("name", p.host)
		d.seen.add(key, "name", seenHostname, p.host)
	}
	switch {
	case key == "src_endpoint":
		o.Str("uid", d.e.Run)
	case !ip && p.host == "":
		o.Str("name", p.ip)
	}
	o.End()
	return ip, port
}

// hostname reports whether a name is a valid hostname: versions before 1.4.0 require that.
func (v minor) hostname(s string) bool {
	if v.has(sinceAnyHostname) {
		return true
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' || strings.ContainsFunc(label, noLetter) {
			return false
		}
	}
	return true
}

func noLetter(r rune) bool {
	return !(r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
}

// protocolNumber returns IANA's number of a protocol by its name in records.
func protocolNumber(name string) (int, bool) {
	switch name {
	case "icmp":
		return 1, true
	case "igmp":
		return 2, true
	case "tcp":
		return 6, true
	case "udp":
		return 17, true
	case "gre":
		return 47, true
	case "esp":
		return 50, true
	case "icmp6", "ipv6-icmp":
		return 58, true
	case "sctp":
		return 132, true
	}
	n, err := strconv.Atoi(name)
	return n, err == nil && n >= 0 && n <= 255
}

// connection writes connection_info. All traffic of a sandbox is outbound.
func connection(in wire.Object, uid, proto, ip string) {
	o := in.Obj("connection_info")
	o.StrIf("uid", uid)
	o.Int("direction_id", 2)
	o.Const("direction", "Outbound")
	if proto != "" {
		o.Str("protocol_name", proto)
		if n, ok := protocolNumber(proto); ok {
			o.Int("protocol_num", int64(n))
		}
	}
	if addr, err := netip.ParseAddr(ip); err == nil {
		if addr.Is4() {
			o.Int("protocol_ver_id", 4)
			o.Const("protocol_ver", "Internet Protocol version 4 (IPv4)")
		} else {
			o.Int("protocol_ver_id", 6)
			o.Const("protocol_ver", "Internet Protocol version 6 (IPv6)")
		}
	}
	o.End()
}

// traffic writes the amount of traffic.
func traffic(in wire.Object, sent, received, packetsOut, packetsIn uint64) {
	o := in.Obj("traffic")
	o.UintIf("bytes_out", sent)
	o.UintIf("bytes_in", received)
	o.UintIf("bytes", sent+received)
	o.UintIf("packets_out", packetsOut)
	o.UintIf("packets_in", packetsIn)
	o.UintIf("packets", packetsOut+packetsIn)
	o.End()
}

// app writes the application of a lifecycle.
func app(in wire.Object, e *export.Event, v minor, name string, version string) {
	if name == "" {
		name = "custody"
	}
	if v.has(sinceApplication) {
		o := in.Obj("application")
		o.Str("name", name)
		o.StrIf("uid", e.Run)
		o.End()
	}
	o := in.Obj("app")
	o.Str("name", name)
	o.Const("vendor_name", "Custody")
	o.StrIf("uid", e.Run)
	o.StrIf("version", version)
	o.End()
}
