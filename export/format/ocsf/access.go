package ocsf

import (
	"net/netip"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

// accessEvent writes an access to records: a login as an authentication, an export as an activity on a log, everything else
// as an API call.
func accessEvent(d *doc, a audit.Access) {
	status, c := success, allowed
	if a.Verdict == audit.Deny {
		status, c = failure, rejected
	}
	uid, activity := accessClass(d.v, a)
	top := d.head(uid, activity, a.Action, status)
	top.StrIf("status_code", statusCode(a.Status))
	top.StrIf("status_detail", a.Reason)
	top.Join("message", "access", a.Action, a.Who, string(a.About), a.Reason)
	top.UintIf("count", a.Count)
	d.secured(c, uid == 1008)
	switch uid {
	case 1008:
		top.Const("log_name", "custody")
		top.Const("log_provider", "custody")
		accessActor(top, d.e, d.v, a.Who)
	case 3002:
		u := top.Obj("user")
		u.Str("name", a.Who)
		u.End()
		custodyService(top)
		client(top, &d.seen, a.Remote)
	case 6003:
		accessActor(top, d.e, d.v, a.Who)
		o := top.Obj("api")
		o.Str("operation", a.Route)
		custodyService(o)
		o.End()
		client(top, &d.seen, a.Remote)
		accessed(top, a)
	}

	left := d.unmapped()
	left.StrIf("action", a.Action)
	left.StrIf("via", a.Via)
	left.StrIf("role", a.Role)
	left.StrIf("tenant", a.Tenant)
	left.StrIf("query", string(a.Query))
	left.StrIf("verdict", string(a.Verdict))
	left.StrIf("project", a.Project)
	left.UintIf("project_version", a.ProjectVersion)
	left.StrIf("project_digest", a.ProjectDigest)
	if uid == 6003 {
		return
	}
	left.StrIf("route", a.Route)
	left.StrIf("about", string(a.About))
	if uid == 1008 {
		left.StrIf("remote", a.Remote)
	}
}

// accessClass returns the OCSF class and activity of an action.
func accessClass(v minor, a audit.Access) (uid, activity int) {
	method, _, _ := strings.Cut(a.Route, " ")
	switch a.Action {
	case "login":
		return 3002, 1
	case "logout":
		return 3002, 2
	case "export":
		if v.has(sinceEventLog) {
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

// accessActor writes the principal, or that it was unknown.
func accessActor(in wire.Object, e *export.Event, v minor, who string) {
	if who == "" {
		stepActor(in, e, v)
		return
	}
	o := in.Obj("actor")
	u := o.Obj("user")
	u.Str("name", who)
	u.End()
	o.End()
}

func custodyService(in wire.Object) {
	s := in.Obj("service")
	s.Const("name", "custody")
	s.End()
}

// client writes the address of the request, which is not the sandbox's.
func client(in wire.Object, seen *observables, remote string) {
	o := in.Obj("src_endpoint")
	addr, err := netip.ParseAddr(remote)
	port := uint16(0)
	if err != nil {
		var p netip.AddrPort
		p, err = netip.ParseAddrPort(remote)
		addr, port = p.Addr(), p.Port()
	}
	if err == nil && addr.Zone() == "" {
		o.Str("ip", addr.String())
		o.IntIf("port", int64(port))
		seen.add("src_endpoint", "ip", seenIP, addr.String())
	} else {
		o.Str("name", remote)
	}
	o.End()
}

// accessed writes the requested run.
func accessed(in wire.Object, a audit.Access) {
	if a.About == "" {
		return
	}
	l := in.Arr("resources")
	r := l.Elem()
	r.Str("name", string(a.About))
	r.Const("type", "run")
	r.End()
	l.End()
}
