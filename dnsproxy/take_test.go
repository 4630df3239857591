package dnsproxy

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/redact"
)

// BenchmarkTake measures the work on one query without sockets and disk: parse, decide, redact and encode the event,
// pack the answer. wire measures parse and pack alone, and miekg the same with miekg/dns.
func BenchmarkTake(b *testing.B) {
	var live netpolicy.Live
	live.Set(policy(b, gatewayRule(b, "*.gatew.test"), directRule(b, "*.direc.test")))
	log := &lastOnly{}
	s := &session{Server: New(Config{Live: &live, Names: constant{}, Run: testRun, Upstream: answers{netip.MustParseAddr("93.184.216.34")}, Recorder: struct {
		*audit.Recorder
		*lastOnly
	}{audit.NewRecorder(log, redact.New(make([]byte, 32))), log}})}
	buf := make([]byte, 0, maxUDP)
	for _, name := range []string{"n0000001.gatew.test", "n0000001.direc.test", "n0000001.evil.test"} {
		packet := template(b, name)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p := newPending()
				p.read(copy(p.packet[:], packet))
				if !s.take(b.Context(), p) {
					b.Fatal("lost")
				}
				buf = p.pack(buf[:0], p.reply, p.size)
				p.free()
			}
		})
	}
	packet := template(b, "n0000001.gatew.test")
	b.Run("wire", func(b *testing.B) {
		b.ReportAllocs()
		r := reply{addrs: []netip.Addr{netpolicy.FirstSynthetic}, ttl: 60}
		for b.Loop() {
			q := parse(packet)
			buf = q.pack(buf[:0], r, q.size)
		}
	})
	b.Run("miekg", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m, r dns.Msg
			check(b, m.Unpack(packet))
			r.SetReply(&m)
			r.Compress = true
			r.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: netpolicy.FirstSynthetic.AsSlice()}}
			r.SetEdns0(maxUDP, false)
			_, err := r.PackBuffer(buf[:cap(buf)])
			check(b, err)
		}
	})
}
