package ocsf

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
)

// Int64 writes a number as a string, for attributes that are strings in the schema.
func (d *doc) Int64(key string, n int64) {
	d.Const(key, strconv.FormatInt(n, 10))
}

func (d *doc) version(n uint32) { d.Int64("version", int64(n)) }

// ms writes nanoseconds as milliseconds. One that is not 0 does not become 0.
func (d *doc) ms(key string, ns int64) {
	if ns != 0 {
		d.Int(key, max(ns/1e6, 1))
	}
}

// device writes the sandbox. profile is set if the class has it from the profile host.
func (d *doc) device(profile bool) {
	d.host = d.host || profile
	o := d.Obj("device")
	s := or(d.e.Start)
	if s.Tier == "host" { // a run of the red team's own
		d.Int("type_id", 1)
		d.Const("type", "Server")
	} else {
		d.Int("type_id", 6)
		d.Const("type", "Virtual")
	}
	d.Str("uid", d.e.Run)
	d.StrIf("name", d.e.Run)
	d.StrIf("hypervisor", s.Tier)
	if s.TemplateDigest != "" {
		i := d.Obj("image")
		d.StrIf("name", s.Template)
		d.Str("uid", s.TemplateDigest)
		d.End(i)
	}
	os := d.Obj("os")
	d.Const("name", "Linux")
	d.Int("type_id", 200)
	d.Const("type", "Linux")
	d.End(os)
	d.End(o)
}

// stepActor writes as the actor the step that the event belongs to, or its run.
func (d *doc) stepActor() {
	name := d.e.Step
	if name == "" {
		name = "custody"
	}
	o := d.Obj("actor")
	if d.has(sinceApplication) {
		a := d.Obj("application")
		d.Str("name", name)
		d.StrIf("uid", d.e.Run)
		d.End(a)
	}
	if d.has(sinceAppName) {
		d.Str("app_name", name)
		d.StrIf("app_uid", d.e.Run)
	} else {
		d.Str("invoked_by", name)
	}
	d.End(o)
}

// procActor writes as the actor the process of the guest that did it, as the guest says.
func (d *doc) procActor(proc string, pid int, parent string) {
	if proc == "" && pid == 0 {
		d.stepActor()
		return
	}
	o := d.Obj("actor")
	p := d.Obj("process")
	d.process(proc, pid, d.e.Exec)
	if d.e.Exec == nil && parent != "" {
		pp := d.Obj("parent_process")
		d.Str("uid", parent)
		d.End(pp)
	}
	d.End(p)
	d.End(o)
}

// process writes what is known of a process into the object that is open.
func (d *doc) process(proc string, pid int, x *audit.Exec) {
	if pid != 0 || proc == "" {
		d.Int("pid", int64(pid))
	}
	d.StrIf("uid", proc)
	if x == nil {
		return
	}
	d.program(x)
	if x.Parent != "" || x.PPID != 0 {
		o := d.Obj("parent_process")
		d.IntIf("pid", int64(x.PPID))
		d.StrIf("uid", x.Parent)
		d.End(o)
	}
}

// program writes what an execve says of a process.
func (d *doc) program(x *audit.Exec) {
	if x.Exe != "" {
		d.Str("name", wire.Base(string(x.Exe)))
		d.path("file", string(x.Exe), 1)
	}
	d.Command("cmd_line", x.Argv)
	if d.has(sinceWorkingDir) {
		d.StrIf("working_directory", string(x.Cwd))
	}
	o := d.Obj("user")
	d.Int64("uid", int64(x.UID))
	d.End(o)
}

// path writes a file that only its path is known of. kind is file.type_id.
func (d *doc) path(key, path string, kind int) {
	o := d.Obj(key)
	d.pathIn(path, kind)
	d.End(o)
}

func (d *doc) pathIn(path string, kind int) {
	d.Str("name", wire.Base(path))
	d.StrIf("path", path)
	if dir := wire.Dir(path); dir != "" {
		d.Str("parent_folder", dir)
	}
	d.Int("type_id", int64(kind))
	if kind == 1 {
		d.Const("type", "Regular File")
	} else {
		d.Const("type", "Unknown")
	}
}

// endpoint is one end of a flow.
type endpoint struct {
	ip   string
	port int
	host string
}

// end writes an end of a flow, and reports whether its address and its port had the form for it; otherwise they belong
// into unmapped. The guest's end without an address is the sandbox; any other has at least an empty name.
func (d *doc) end(key string, p endpoint) (ip, port bool) {
	o := d.Obj(key)
	addr, err := netip.ParseAddr(p.ip)
	ip = err == nil && addr.Zone() == ""
	if ip {
		s := p.ip
		if len(s) > 39 {
			s = addr.String()
		}
		d.Str("ip", s)
		d.see(key, "ip", seenIP, s)
	}
	port = p.port >= 0 && p.port <= 65535
	if port && p.port != 0 {
		d.Int("port", int64(p.port))
	}
	switch {
	case p.host == "":
	case d.hostname(p.host):
		d.Str("hostname", p.host)
		d.see(key, "hostname", seenHostname, p.host)
	default:
		d.Str("name", p.host)
		d.see(key, "name", seenHostname, p.host)
	}
	switch {
	case key == "src_endpoint":
		d.Str("uid", d.e.Run)
	case !ip && p.host == "":
		d.Str("name", p.ip)
	}
	d.End(o)
	return ip, port
}

// hostname reports whether a name can be a hostname: until 1.3.0 the form was required.
func (d *doc) hostname(s string) bool {
	if d.has(sinceAnyHostname) {
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

// protocolNumber returns IANA's number of a protocol by the names that records use.
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

// connection writes connection_info. Everything that a sandbox does is outbound.
func (d *doc) connection(uid, proto, ip string) {
	o := d.Obj("connection_info")
	d.StrIf("uid", uid)
	d.Int("direction_id", 2)
	d.Const("direction", "Outbound")
	if proto != "" {
		d.Str("protocol_name", proto)
		if n, ok := protocolNumber(proto); ok {
			d.Int("protocol_num", int64(n))
		}
	}
	if addr, err := netip.ParseAddr(ip); err == nil {
		if addr.Is4() {
			d.Int("protocol_ver_id", 4)
			d.Const("protocol_ver", "Internet Protocol version 4 (IPv4)")
		} else {
			d.Int("protocol_ver_id", 6)
			d.Const("protocol_ver", "Internet Protocol version 6 (IPv6)")
		}
	}
	d.End(o)
}

// traffic writes what was carried.
func (d *doc) traffic(out, in, packetsOut, packetsIn uint64) {
	o := d.Obj("traffic")
	d.UintIf("bytes_out", out)
	d.UintIf("bytes_in", in)
	d.UintIf("bytes", out+in)
	d.UintIf("packets_out", packetsOut)
	d.UintIf("packets_in", packetsIn)
	d.UintIf("packets", packetsOut+packetsIn)
	d.End(o)
}

// app writes the application of a lifecycle.
func (d *doc) app(name string, version string) {
	if name == "" {
		name = "custody"
	}
	if d.has(sinceApplication) {
		o := d.Obj("application")
		d.Str("name", name)
		d.StrIf("uid", d.e.Run)
		d.End(o)
	}
	o := d.Obj("app")
	d.Str("name", name)
	d.Const("vendor_name", "Custody")
	d.StrIf("uid", d.e.Run)
	d.StrIf("version", version)
	d.End(o)
}
