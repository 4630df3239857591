package ecs

import (
	"net/netip"

	"github.com/custody-project/custody/export/internal/wire"
)

// related are the values of related.*, which repeat fields of one event for searches; the first ones suffice.
type related struct {
	ips, hosts, hashes [8]string
	nIP, nHost, nHash  int
}

// addIP adds an address, and reports whether it is valid.
func (r *related) addIP(s string) bool {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return false
	}
	if r.nIP < len(r.ips) {
		r.ips[r.nIP] = s
		r.nIP++
	}
	return true
}

func (r *related) addHost(s string) {
	if s != "" && r.nHost < len(r.hosts) {
		r.hosts[r.nHost] = s
		r.nHost++
	}
}

func (r *related) addHash(s string) {
	if s != "" && r.nHash < len(r.hashes) {
		r.hashes[r.nHash] = s
		r.nHash++
	}
}

func (r *related) write(in wire.Object) {
	o := in.Obj("related")
	o.Strs("ip", r.ips[:r.nIP])
	o.Strs("hosts", r.hosts[:r.nHost])
	o.Strs("hash", r.hashes[:r.nHash])
	o.End()
}
