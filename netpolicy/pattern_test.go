package netpolicy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestName(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	long := strings.Repeat(label63+".", 3) + strings.Repeat("a", 61) // 253
	cases := []struct {
		in, want string
		ok       bool
	}{
		{"example.com", "example.com", true},
		{"EXAMPLE.Com.", "example.com", true},
		{"localhost", "localhost", true},
		{"_dmarc.example.com", "_dmarc.example.com", true},
		{"xn--mnchen-3ya.de", "xn--mnchen-3ya.de", true},
		{"a--b.c", "a--b.c", true},
		{"1.a", "1.a", true},
		{label63 + ".a", label63 + ".a", true},
		{long, long, true},
		{long + ".", long, true},
		{in: ""}, {in: "."}, {in: ".."}, {in: "a.."}, {in: ".a"}, {in: "a..b"},
		{in: label63 + "a.a"}, {in: "a" + long},
		{in: "-a.com"}, {in: "a-.com"}, {in: "a.com-"},
		{in: "a b.com"}, {in: "a\x00.com"}, {in: "a.com\n"}, {in: "a/b.com"}, {in: "a.com:443"}, {in: "user@a.com"}, {in: "*.a.com"}, {in: "%61.com"},
		{in: "münchen.de"}, {in: "ｅxample.com"}, {in: "example。com"}, {in: "\u212a.com"}, {in: "a\xff.com"}, {in: "\u0130.com"},
		// Addresses, in every notation that some resolver accepts.
		{in: "1.2.3.4"}, {in: "1.2.3.4."}, {in: "127.1"}, {in: "2130706433"}, {in: "0x7f000001"}, {in: "0x7f.1"}, {in: "0177.0.0.1"}, {in: "a.1"}, {in: "a.0x1"},
		{in: "[::1]"}, {in: "::1"}, {in: "::ffff:1.2.3.4"}, {in: "fe80::1%eth0"},
	}
	for _, c := range cases {
		if got, ok := Name(c.in); got != c.want || ok != c.ok {
			t.Errorf("Name(%q) = %q, %v, want %q, %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestParsePattern(t *testing.T) {
	cases := []struct{ in, want, err string }{
		{in: "GitHub.com.", want: "github.com"},
		{in: "*.PyPI.org", want: "*.pypi.org"},
		{in: "10.0.0.0/8", want: "10.0.0.0/8"},
		{in: "192.0.2.1", want: "192.0.2.1/32"},
		{in: "0.0.0.0/0", want: "0.0.0.0/0"},
		{in: "2001:DB8:0::/32", want: "2001:db8::/32"},
		{in: "::1", want: "::1/128"},
		{in: "", err: "give a host name"},
		{in: "*", err: "give a host name"},
		{in: "*.", err: "give a host name"},
		{in: "*.com", err: "top-level"},
		{in: "*.com.", err: "top-level"},
		{in: "*.*.com", err: "give a host name"},
		{in: "a.*.com", err: "give a host name"},
		{in: "*a.com", err: "give a host name"},
		{in: "*.1.2.3.4", err: "give a host name"},
		{in: "https://a.com", err: "give a host name"},
		{in: "10.0.0.1/8", err: "write 10.0.0.0/8"},
		{in: "10.0.0.0/33", err: "give a host name"},
		{in: "010.0.0.1", err: "give a host name"},
		{in: "::ffff:10.0.0.1", err: "IPv4 address as such"},
		{in: "::ffff:10.0.0.0/104", err: "IPv4 address as such"},
		{in: "fe80::1%eth0", err: "zone"},
		{in: "::ffff:10.0.0.1%x", err: "zone"},
	}
	for _, c := range cases {
		p, err := ParsePattern(c.in)
		if err != nil {
			if c.err == "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("ParsePattern(%q): %v, want %q", c.in, err, c.err)
			}
		} else if c.err != "" || p.String() != c.want {
			t.Errorf("ParsePattern(%q) = %s, want %s %s", c.in, p, c.want, c.err)
		}
	}
}

// numeric reports whether inet_aton(3) would read s as an address. It accepts far more than netip: one to four numbers
// in three notations.
func numeric(s string) bool {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return false
	}
	for _, p := range parts {
		digits, set := p, "0123456789"
		if hex, ok := strings.CutPrefix(strings.ToLower(p), "0x"); ok {
			digits, set = hex, "0123456789abcdef"
		}
		if strings.Trim(digits, set) != "" || p == "" {
			return false
		}
	}
	return true
}

// FuzzName: an accepted name is in its own normal form, plain ASCII, and not an address in any notation.
func FuzzName(f *testing.F) {
	for _, s := range []string{"a.com", "A.COM.", "0x7f.1", "1.2.3.4", "\u212a.com", "a\xff", "_a.b-c.d", "a.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		name, ok := Name(in)
		if !ok {
			if name != "" {
				t.Fatalf("%q: refused, but %q", in, name)
			}
			return
		}
		if again, ok := Name(name); again != name || !ok {
			t.Fatalf("%q -> %q -> %q, %v", in, name, again, ok)
		}
		if !strings.EqualFold(name, strings.TrimSuffix(in, ".")) {
			t.Fatalf("%q became %q", in, name)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(name) > 253 {
			t.Fatalf("%q: %q", in, name)
		}
		if _, err := netip.ParseAddr(name); err == nil || numeric(name) {
			t.Fatalf("%q is an address", in)
		}
	})
}

// FuzzPattern: parsing the String of a parsed pattern returns the same pattern.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"a.com", "*.A.COM.", "10.0.0.0/8", "::1", "::ffff:1.2.3.4", "::ffff:0:0/96", "*.com", "fe80::%1", "0.0.0.0/0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		p, err := ParsePattern(in)
		if err != nil {
			if p != (Pattern{}) {
				t.Fatalf("%q: %v with %v", in, err, p)
			}
			return
		}
		again, err := ParsePattern(p.String())
		if err != nil || again != p {
			t.Fatalf("%q -> %q -> %v, %v", in, p, again, err)
		}
		name, below := p.Name()
		prefix, isRange := p.Prefix()
		if isRange == (name != "") || isRange && (below || prefix != prefix.Masked() || prefix.Addr().Is4In6()) {
			t.Fatalf("%q: name %q below %v range %v", in, name, below, prefix)
		}
	})
}

func TestPatternMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a.com", "a.com", true}, {"a.com", "b.a.com", false}, {"a.com", "", false},
		{"*.a.com", "b.a.com", true}, {"*.a.com", "c.b.a.com", true}, {"*.a.com", "a.com", false}, {"*.a.com", "ba.com", false},
		{"10.0.0.0/8", "10.0.0.1", false}, {"10.0.0.0/8", "", false},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Matches(c.name); got != c.want {
			t.Errorf("%s matches %q: %t", c.pattern, c.name, got)
		}
	}
}
