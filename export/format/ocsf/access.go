package ocsf

import (
	"net/netip"
	"strings"

	"github.com/custody-project/custody/audit"
)

// access writes an access to records: a login as an authentication, an export as an activity on a log, all else as an
// API call.
func (d *doc) access(a audit.Access) {
	status, c := success, allowed
	if a.Verdict == audit.Deny {
		status, c = failure, rejected
	}
	uid, activity := d.accessClass(a)
	d.head(uid, activity, a.Action, status)
	d.StrIf("status_code", statusCode(a.Status))
	d.StrIf("status_detail", a.Reason)
	d.Join("message", "access", a.Action, a.Who, string(a.About), a.Reason)
	d.UintIf("count", a.Count)
	d.secured(c, uid == 1008)
	switch uid {
	case 1008:
		d.Const("log_name", "custody")
		d.Const("log_provider", "custody")
		d.accessActor(a.Who)
	case 3002:
		u := d.Obj("user")
		d.Str("name", a.Who)
		d.End(u)
		d.custodyService()
		d.client(a.Remote)
	case 6003:
		d.accessActor(a.Who)
		o := d.Obj("api")
		d.Str("operation", a.Route)
		d.custodyService()
		d.End(o)
		d.client(a.Remote)
		d.accessed(a)
	}

	d.unmapped()
	d.StrIf("action", a.Action)
	d.StrIf("via", a.Via)
	d.StrIf("role", a.Role)
	d.StrIf("tenant", a.Tenant)
	d.StrIf("query", string(a.Query))
	d.StrIf("verdict", string(a.Verdict))
	if uid == 6003 {
		return
	}
	d.StrIf("route", a.Route)
	d.StrIf("about", string(a.About))
	if uid == 1008 {
		d.StrIf("remote", a.Remote)
	}
}

// accessClass returns the OCSF class and activity of an action.
func (d *doc) accessClass(a audit.Access) (uid, activity int) {
	method, _, _ := strings.Cut(a.Route, " ")
	switch a.Action {
	case "login":
		return 3002, 1
	case "logout":
		return 3002, 2
	case "export":
		if d.has(sinceEventLog) {
			return 1008, 3
		}
		return 6003, 2
	case "view", "follow", "search", "verify", "report":
		return 6003, 2
	case "manage", "note":
		switch method {
		case "POST":
			return 6003, 1
		case "GET":
			return 6003, 2
		case "PUT", "PATCH":
			return 6003, 3
		case "DELETE":
			return 6003, 4
		}
	}
	return 6003, other
}

// accessActor writes the principal, or that there was no known one.
func (d *doc) accessActor(who string) {
	if who == "" {
		d.stepActor()
		return
	}
	o := d.Obj("actor")
	u := d.Obj("user")
	d.Str("name", who)
	d.End(u)
	d.End(o)
}

func (d *doc) custodyService() {
	s := d.Obj("service")
	d.Const("name", "custody")
	d.End(s)
}

// client writes the address that a request came from, which is not the sandbox's.
func (d *doc) client(remote string) {
	o := d.Obj("src_endpoint")
	addr, err := netip.ParseAddr(remote)
	port := uint16(0)
	if err != nil {
		var p netip.AddrPort
		p, err = netip.ParseAddrPort(remote)
		addr, port = p.Addr(), p.Port()
	}
	if err == nil && addr.Zone() == "" {
		d.Str("ip", addr.String())
		d.IntIf("port", int64(port))
		d.see("src_endpoint", "ip", seenIP, addr.String())
	} else {
		d.Str("name", remote)
	}
	d.End(o)
}

// accessed writes the run that was asked for.
func (d *doc) accessed(a audit.Access) {
	if a.About == "" {
		return
	}
	l := d.Arr("resources")
	r := d.Elem()
	d.Str("name", string(a.About))
	d.Const("type", "run")
	d.End(r)
	d.EndArr(l)
}
