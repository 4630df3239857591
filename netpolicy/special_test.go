package netpolicy

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func TestSpecial(t *testing.T) {
	cases := []struct{ addr, want string }{
		{"8.8.8.8", ""}, {"172.15.255.255", ""}, {"172.32.0.0", ""}, {"100.63.255.255", ""}, {"100.128.0.0", ""}, {"198.17.255.255", ""},
		{"198.20.0.0", ""}, {"223.255.255.255", ""}, {"168.63.129.15", ""}, {"2606:4700::1111", ""}, {"2001:4860:4860::8888", ""},
		{"0.0.0.0", "0.0.0.0/8"}, {"10.255.255.255", "10.0.0.0/8"}, {"100.64.0.1", "100.64.0.0/10"}, {"100.100.100.200", "100.64.0.0/10"},
		{"127.0.0.53", "127.0.0.0/8"}, {"169.254.169.254", "169.254.0.0/16"}, {"172.31.255.255", "172.16.0.0/12"}, {"192.168.0.1", "192.168.0.0/16"},
		{"192.0.0.192", "192.0.0.0/24"}, {"168.63.129.16", "168.63.129.16/32"}, {"198.19.0.1", "198.18.0.0/15"}, {"198.18.1.0", "198.18.0.0/16"},
		{"224.0.0.1", "224.0.0.0/4"}, {"255.255.255.255", "240.0.0.0/4"},
		{"::", "::/3"}, {"::1", "::/3"}, {"::8.8.8.8", "::/3"}, {"100::1", "::/3"}, {"5f00::1", "4000::/2"}, {"e000::1", "8000::/1"},
		{"fd00:ec2::254", "fc00::/7"}, {"fdc5:7a1c:19d2::1", "fdc5:7a1c:19d2::/64"}, {"fe80::1", "fe80::/10"}, {"fe80::1%eth0", "fe80::/10"},
		{"ff02::1", "ff00::/8"}, {"2001::1", "2001::/23"}, {"2001:db8::1", "2001:db8::/32"}, {"3fff::1", "3fff::/20"}, {"fec0::1", "8000::/1"},
		// IPv4 inside IPv6: a mapped address is the IPv4 address itself; NAT64 and 6to4 embed it.
		{"::ffff:8.8.8.8", ""}, {"::ffff:10.0.0.1", "10.0.0.0/8"}, {"::ffff:169.254.169.254", "169.254.0.0/16"}, {"::ffff:127.0.0.1%lo", "127.0.0.0/8"},
		{"64:ff9b::8.8.8.8", "64:ff9b::/96"}, {"64:ff9b::10.0.0.1", "64:ff9b::a00:0/104"}, {"64:ff9b::169.254.169.254", "64:ff9b::a9fe:0/112"},
		{"64:ff9b:1::10.0.0.1", "64:ff9b:1::/48"}, {"2002:808:808::1", "2002::/16"}, {"2002:7f00:1::1", "2002:7f00::/24"}, {"2002:a9fe:a9fe::", "2002:a9fe::/32"},
	}
	for _, c := range cases {
		got, is := Special(netip.MustParseAddr(c.addr))
		if is != (c.want != "") || is && got.String() != c.want {
			t.Errorf("Special(%s) = %v, %v, want %q", c.addr, got, is, c.want)
		}
	}
	if _, is := Special(netip.Addr{}); is {
		t.Error("no address is special")
	}
	for _, p := range SpecialRanges() {
		if p != p.Masked() {
			t.Errorf("%s has host bits", p)
		}
	}
	SpecialRanges()[0] = netip.MustParsePrefix("8.8.8.8/32")
	if _, is := Special(netip.MustParseAddr("0.0.0.0")); !is {
		t.Error("a caller changed the table")
	}
}

func TestAllowsAddr(t *testing.T) {
	cases := []struct {
		rule, addr string
		want       bool
	}{
		{"a.com tcp/443", "8.8.8.8", true},
		{"a.com tcp/443", "::ffff:8.8.8.8", true},
		{"a.com tcp/443", "2606:4700::1", true},
		{"a.com tcp/443", "2606:4700::1%eth0", false},
		{"a.com tcp/443", "10.0.0.1", false},
		{"a.com tcp/443", "::ffff:10.0.0.1", false},
		{"a.com tcp/443", "64:ff9b::8.8.8.8", false},
		{`a.com tcp/443 addresses=["10.0.0.0/8"]`, "10.0.0.1", true},
		{`a.com tcp/443 addresses=["10.0.0.0/8"]`, "::ffff:10.0.0.1", true},
		{`a.com tcp/443 addresses=["10.0.0.0/8"]`, "64:ff9b::10.0.0.1", false},
		{`a.com tcp/443 addresses=["10.0.0.0/8"]`, "8.8.8.8", true},
		{`a.com tcp/443 addresses=["10.0.0.0/8"]`, "192.168.0.1", false},
		{`a.com tcp/443 addresses=["10.9.0.0/16"]`, "10.8.0.1", false},
		{`a.com tcp/443 addresses=["0.0.0.0/0"]`, "10.0.0.1", false},
		{`a.com tcp/443 addresses=["::/0"]`, "fe80::1", false},
		{`a.com tcp/443 addresses=["64:ff9b::/96"]`, "64:ff9b::8.8.8.8", true},
		{`a.com tcp/443 addresses=["64:ff9b::/96"]`, "64:ff9b::169.254.169.254", false},
		{`a.com tcp/443 addresses=["64:ff9b::a00:0/104"]`, "64:ff9b::10.0.0.1", true},
		{`a.com tcp/443 addresses=["2002::/16"]`, "2002:7f00:1::1", false},
		{`a.com tcp/443 direct addresses=["fc00::/7"]`, "fd00::1", true},
		{`a.com tcp/443 direct addresses=["fc00::/7"]`, "fdc5:7a1c:19d2::1", false},
		{`a.com tcp/443 direct addresses=["198.18.0.0/15"]`, "198.18.0.1", false},
		{"0.0.0.0/0 tcp/443 direct", "8.8.8.8", true},
		{"0.0.0.0/0 tcp/443 direct", "169.254.169.254", false},
		{"10.0.0.0/8 tcp/443 direct", "10.0.0.1", true},
		{"::/0 tcp/443 direct", "::ffff:8.8.8.8", true}, // the address is allowed; Decide checks whether the range contains it
		{"::/0 tcp/443 direct", "fd00::1", false},
	}
	for _, c := range cases {
		r, err := ParseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.AllowsAddr(netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("%s: %s: %v, want %v", c.rule, c.addr, got, c.want)
		}
		if r.AllowsAddr(netip.Addr{}) {
			t.Errorf("%s allows no address", c.rule)
		}
	}
}

// TestSpecialAgainstOracle: the index returns the same as a search of all ranges.
func TestSpecialAgainstOracle(t *testing.T) {
	check := func(a netip.Addr) {
		var want netip.Prefix
		for _, s := range specialRanges {
			if has(s, a) && (!want.IsValid() || s.Bits() > want.Bits()) {
				want = s
			}
		}
		if got, is := Special(a); got != want || is != want.IsValid() {
			t.Errorf("Special(%s) = %v, %v, want %v", a, got, is, want)
		}
	}
	for _, s := range specialRanges { // both ends, inside and outside
		last := s.Addr().AsSlice()
		for i := s.Bits(); i < len(last)*8; i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, a := range []netip.Addr{s.Addr(), s.Addr().Prev(), end, end.Next()} {
			if a.IsValid() {
				check(a)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], random.Uint64())
		binary.BigEndian.PutUint64(b[8:], random.Uint64())
		check(netip.AddrFrom16(b))
		check(netip.AddrFrom4([4]byte(b[:4])))
	}
}
