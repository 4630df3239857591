package gateway

import (
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2Host is an HTTP/2 host that writes single frames.
type h2Host struct {
	*http2.Framer
	conn    net.Conn
	encoder *hpack.Encoder
	block   bytes.Buffer // the encoder's output
}

// fields encodes header fields; list alternates names and values.
func (h *h2Host) fields(list ...string) []byte {
	h.block.Reset()
	for i := 0; i < len(list); i += 2 {
		h.encoder.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]}) // writes to memory
	}
	return bytes.Clone(h.block.Bytes())
}

// head sends all header fields on a stream.
func (h *h2Host) head(stream uint32, end bool, list ...string) {
	h.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: h.fields(list...), EndHeaders: true, EndStream: end}) // reading detects a closed gateway
}

// newH2Host starts a host that responds normally to requests for /second, and with the given behaviour to all others.
func (w *keyWorld) newH2Host(name string, say func(h *h2Host, stream uint32)) {
	w.Helper()
	addr := newAddr()
	raw, err := net.Listen("tcp", netip.AddrPortFrom(addr, 443).String())
	if err != nil {
		w.Fatal(err)
	}
	l := tls.NewListener(raw, &tls.Config{Certificates: []tls.Certificate{*w.ca.leaf(w, name)}, NextProtos: []string{"h2"}})
	w.zone.set(name, addr)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.Cleanup(func() { c.Close() })
			serving.Go(func() { w.serveH2(c, say) })
		}
	})
	w.Cleanup(serving.Wait)
	w.Cleanup(func() { l.Close() })
	w.Cleanup(w.Gateway.Close)
}

func (w *keyWorld) serveH2(c net.Conn, say func(h *h2Host, stream uint32)) {
	defer c.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	h := &h2Host{Framer: http2.NewFramer(c, c), conn: c}
	h.AllowIllegalWrites = true
	h.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.encoder = hpack.NewEncoder(&h.block)
	h.WriteSettings()
	for {
		f, err := h.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				h.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			if f.PseudoValue("path") == "/second" {
				h.head(f.StreamID, false, ":status", "200", "content-length", "6")
				h.WriteData(f.StreamID, true, []byte("second"))
				continue
			}
			credential := ""
			for _, field := range f.RegularFields() {
				if field.Name == "x-api-key" {
					credential = field.Value
				}
			}
			if credential != apiValue {
				w.Errorf("the host received the credential %q", credential)
			}
			say(h, f.StreamID)
		}
	}
}

// heard is the part of a response that a guest received.
type heard struct {
	status int
	text   string // header, body, trailer and errors
	whole  bool
	early  int // informational responses (1xx)
}

// getH2 makes an HTTP/2 request.
func getH2(client *http.Client, path string) (got heard) {
	trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { got.early++; return nil }}
	req, err := http.NewRequest("GET", "https://a.example"+path, nil)
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		got.text = err.Error()
		return got
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	got.status, got.whole = resp.StatusCode, err == nil
	got.text = fmt.Sprintf("%v %s %v %v", resp.Header, body, resp.Trailer, err)
	return got
}

// TestHostileH2: hosts send frames that violate the protocol, and frames with the credential that the gateway added to
// the request. None of that reaches the guest or a log, and the record is correct.
func TestHostileH2(t *testing.T) {
	const proper = "a.example closed the connection or violated TLS or HTTP"
	const halfway = "the exchange is incomplete"
	echo, asHex := "you sent "+apiValue, hex.EncodeToString([]byte(apiValue))
	ok := []string{":status", "200"}
	for _, c := range []struct {
		name   string
		say    func(h *h2Host, stream uint32)
		status int // 0: the stream is reset
		reason string
		masked int
	}{
		{"header", func(h *h2Host, s uint32) {
			h.head(s, true, ":status", "200", "x-echo", echo, "x-"+asHex, "x")
		}, 200, "", 2},
		{"body, byte by byte", func(h *h2Host, s uint32) {
			h.head(s, false, ok...)
			for i := range len(echo) {
				h.WriteData(s, false, []byte(echo[i:i+1]))
			}
			h.WriteData(s, true, nil)
		}, 200, "", 1},
		{"trailer", func(h *h2Host, s uint32) {
			h.head(s, false, append(ok, "trailer", "x-announced")...)
			h.WriteData(s, false, []byte("body"))
			h.head(s, true, "x-announced", echo, "x-unannounced", echo, "x-"+asHex, "x")
		}, 200, "", 3},
		{"pseudo field in the trailer", func(h *h2Host, s uint32) {
			h.head(s, false, ok...)
			h.head(s, true, ":status", "200", "x-echo", echo)
		}, 200, halfway, 0},
		{"trailer without an end", func(h *h2Host, s uint32) {
			h.head(s, false, ok...)
			h.head(s, false, "x-echo", echo)
		}, 200, halfway, 0},
		{"early hints", func(h *h2Host, s uint32) {
			h.head(s, false, ":status", "103", "link", "<"+echo+">")
			h.head(s, true, ok...)
		}, 200, "", 0},
		{"answers before the answer, without end", func(h *h2Host, s uint32) {
			for range 100_000 {
				h.head(s, false, ":status", "103", "link", "<"+echo+">")
			}
		}, 502, proper, 0},
		{"another protocol", func(h *h2Host, s uint32) {
			h.head(s, false, ":status", "101", "x-echo", echo)
			h.head(s, true, ok...)
		}, 200, "", 0},
		{"early answer that ends", func(h *h2Host, s uint32) { h.head(s, true, ":status", "103", "x-echo", echo) }, 502, proper, 0},
		{"no status", func(h *h2Host, s uint32) { h.head(s, true, "x-echo", echo) }, 502, proper, 0},
		{"the credential as status", func(h *h2Host, s uint32) { h.head(s, true, ":status", apiValue) }, 502, proper, 0},
		{"a name in capitals", func(h *h2Host, s uint32) { h.head(s, true, ":status", "200", "X-"+echo, "x") }, 502, proper, 0},
		{"a line end in a value", func(h *h2Host, s uint32) { h.head(s, true, ":status", "200", "x", "y\r\nz: "+echo) }, 502, proper, 0},
		{"huge header", func(h *h2Host, s uint32) {
			h.conts(s, h.fields(":status", "200", "x-echo", echo, "x-huge", strings.Repeat("y", 2*maxAnswerHead)), true)
		}, 502, proper, 0},
		{"many fields", func(h *h2Host, s uint32) {
			h.conts(s, h.fields(append(ok, strings.Split(strings.Repeat("x-echo,"+echo+",", 20_000)+"x,y", ",")...)...), true)
		}, 502, proper, 0},
		{"a bomb of the table", func(h *h2Host, s uint32) {
			big := strings.Repeat("z", 3000)
			b := h.fields(":status", "200", "x-big", big)
			again := h.fields("x-big", big)
			h.conts(s, append(b, bytes.Repeat(again, 60_000)...), true)
		}, 502, proper, 0},
		{"header that does not decode", func(h *h2Host, s uint32) {
			h.WriteHeaders(http2.HeadersFrameParam{StreamID: s, BlockFragment: append([]byte{0xff, 0xff, 0xff, 0xff}, echo...), EndHeaders: true, EndStream: true})
		}, 502, proper, 0},
		{"data before the header", func(h *h2Host, s uint32) { h.WriteData(s, true, []byte(echo)) }, 502, proper, 0},
		{"data after the end", func(h *h2Host, s uint32) {
			h.head(s, false, ok...)
			h.WriteData(s, true, []byte("whole"))
			h.WriteData(s, true, []byte(echo))
		}, 200, "", 0},
		{"header after the end", func(h *h2Host, s uint32) {
			h.head(s, true, ok...)
			h.head(s, true, ":status", "200", "x-echo", echo)
		}, 200, "", 0},
		{"too long", func(h *h2Host, s uint32) {
			h.head(s, false, append(ok, "content-length", "2")...)
			h.WriteData(s, true, []byte("no"+echo))
		}, 200, halfway, 0},
		{"too short", func(h *h2Host, s uint32) {
			h.head(s, false, append(ok, "content-length", "200")...)
			h.WriteData(s, true, []byte(echo))
		}, 200, halfway, 0},
		{"ends amid the value", func(h *h2Host, s uint32) {
			h.head(s, false, ok...)
			h.WriteData(s, false, []byte("you sent "+apiValue[:16]))
			h.WriteRSTStream(s, http2.ErrCodeInternal)
		}, 200, halfway, 0},
		{"reset with data", func(h *h2Host, s uint32) {
			h.WriteRawFrame(http2.FrameRSTStream, 0, s, append([]byte{0, 0, 0, 2}, echo...))
		}, 502, proper, 0},
		{"farewell", func(h *h2Host, s uint32) {
			h.WriteGoAway(0, http2.ErrCodeInternal, []byte(echo))
			h.conn.Close()
		}, 502, proper, 0},
		{"farewell amid the answer", func(h *h2Host, s uint32) {
			h.head(s, false, ok...)
			h.WriteData(s, false, []byte("half"))
			h.WriteGoAway(s, http2.ErrCodeProtocol, []byte(echo))
			h.conn.Close()
		}, 200, halfway, 0},
		{"push", func(h *h2Host, s uint32) {
			h.WritePushPromise(http2.PushPromiseParam{StreamID: s, PromiseID: 2, EndHeaders: true,
				BlockFragment: h.fields(":method", "GET", ":scheme", "https", ":authority", "a.example", ":path", "/"+apiValue)})
			h.head(2, false, append(ok, "x-echo", echo)...)
			h.WriteData(2, true, []byte(echo))
		}, 502, proper, 0},
		{"a stream without a request", func(h *h2Host, s uint32) {
			h.head(s+100, false, append(ok, "x-echo", echo)...)
			h.WriteData(s+100, true, []byte(echo))
		}, 502, proper, 0},
		{"an unknown frame", func(h *h2Host, s uint32) {
			h.WriteRawFrame(0xee, 0xff, s, []byte(echo))
			h.head(s, true, ok...)
		}, 200, "", 0},
		{"a setting that may not be", func(h *h2Host, s uint32) {
			h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}, 502, proper, 0},
		{"no HTTP/2", func(h *h2Host, s uint32) {
			io.WriteString(h.conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 4000\r\n\r\n"+echo)
			h.conn.Close()
		}, 502, proper, 0},
		{"a frame longer than may be", func(h *h2Host, s uint32) {
			h.conn.Write(append([]byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, byte(s)}, echo...))
		}, 502, proper, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := loud(t)
			w := newKeyWorld(t, nil)
			w.newH2Host("a.example", c.say)
			client := w.client("a.example", withH2)
			client.Timeout = 30 * time.Second
			got := getH2(client, "/first")
			if got.status != c.status || got.whole != (c.reason != halfway) || got.early > 0 {
				t.Errorf("the guest received %+v", got)
			}
			time.Sleep(20 * time.Millisecond) // for data after the response
			if next := getH2(client, "/second"); next.status != 200 || !strings.Contains(next.text, " second ") {
				t.Errorf("then the guest received %+v", next)
			}
			for what, text := range map[string]string{"the guest": got.text, "the program's log": said.String()} {
				if leaks(text) {
					t.Errorf("%s received the credential: %q", what, text)
				}
			}
			ev := w.nextHTTP()
			if ev.Reason != c.reason || ev.Status != c.status || ev.Credential != "api" || ev.Redacted != c.masked {
				t.Errorf("the record has %+v", ev)
			}
			w.checkRecord()
		})
	}
}

// leaks reports whether text has more than a few bytes of the credential.
func leaks(text string) bool {
	for _, value := range []string{apiValue, hex.EncodeToString([]byte(apiValue))} {
		for at := 0; at+10 <= len(value); at++ {
			if strings.Contains(strings.ToLower(text), strings.ToLower(value[at:at+10])) {
				return true
			}
		}
	}
	return false
}

// conts sends a block of fields in several frames.
func (h *h2Host) conts(stream uint32, block []byte, end bool) {
	const most = 16 << 10
	first := block[:min(len(block), most)]
	err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: len(first) == len(block), EndStream: end})
	for block = block[len(first):]; len(block) > 0 && err == nil; {
		next := block[:min(len(block), most)]
		block = block[len(next):]
		err = h.WriteContinuation(stream, len(block) == 0, next)
	}
}

// TestFloodsOfH2: hosts send endlessly. The gateway buffers a bounded amount, and stops the host by flow control where
// the protocol has it.
func TestFloodsOfH2(t *testing.T) {
	for name, c := range map[string]struct {
		flood func(h *h2Host, stream uint32) error
		takes bool // the gateway reads and drops all of it
	}{
		"continuations": {flood: func(h *h2Host, s uint32) error {
			block := h.fields("x-more", strings.Repeat("y", 15_000))
			err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: s, BlockFragment: h.fields(":status", "200")})
			for err == nil {
				err = h.WriteContinuation(s, false, block)
			}
			return err
		}},
		"empty continuations": {takes: true, flood: func(h *h2Host, s uint32) error {
			err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: s, BlockFragment: h.fields(":status", "200")})
			for err == nil {
				err = h.WriteContinuation(s, false, nil)
			}
			return err
		}},
		"data beyond the window": {flood: func(h *h2Host, s uint32) error {
			h.head(s, false, ":status", "200")
			var err error
			for err == nil {
				err = h.WriteData(s, false, make([]byte, 16<<10))
			}
			return err
		}},
		"early answers": {takes: true, flood: func(h *h2Host, s uint32) error {
			block := h.fields(":status", "103", "link", strings.Repeat("y", 8000))
			var err error
			for err == nil {
				err = h.WriteHeaders(http2.HeadersFrameParam{StreamID: s, BlockFragment: block, EndHeaders: true})
			}
			return err
		}},
		"pings": {takes: true, flood: func(h *h2Host, s uint32) error {
			var err error
			for err == nil {
				err = h.WritePing(false, [8]byte{})
			}
			return err
		}},
		"settings": {takes: true, flood: func(h *h2Host, s uint32) error {
			var err error
			for i := uint32(0); err == nil; i++ {
				err = h.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100 + i%2})
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newKeyWorld(t, nil)
			enough := int64(64 << 20)
			if c.takes {
				enough = 1 << 20
			}
			var sent atomic.Int64
			ended := make(chan struct{})
			w.newH2Host("a.example", func(h *h2Host, s uint32) {
				defer close(ended)
				h.Framer = http2.NewFramer(&counting{h.conn, &sent, enough}, h.conn)
				h.AllowIllegalWrites = true
				_ = c.flood(h, s) // it always returns an error
				if c.takes {
					h.conn.Close()
				}
			})
			before := inUse()
			resp, err := w.client("a.example", withH2).Get("https://a.example/first")
			if err == nil {
				defer resp.Body.Close() // the body is not read
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Error("the host was neither stopped nor disconnected")
			}
			if n := sent.Load(); n >= enough && !c.takes {
				t.Errorf("the gateway accepted %d bytes", n)
			}
			if more := inUse() - before; more > 16<<20 {
				t.Errorf("%d bytes more are in use", more)
			}
		})
	}
}

// TestUnreadAnswers: a guest does not read many long responses on one connection. The gateway's buffers for the
// connection are bounded.
func TestUnreadAnswers(t *testing.T) {
	const requests = 60
	w := newKeyWorld(t, nil)
	w.newHost("a.example", 443, bulk())
	client := w.client("a.example", withH2, func(t *http.Transport) {
		t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10, MaxReceiveBufferPerConnection: 64 << 10}
	})
	before := inUse()
	for range requests {
		resp, err := client.Get("https://a.example/8000000")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	time.Sleep(500 * time.Millisecond) // time for data to arrive
	if more := inUse() - before; more > requests*maxUnread+16<<20 {
		t.Errorf("%d bytes are in use for answers that are not read", more)
	}
}

// counting is a connection that accepts a number of bytes, and then fails. A write that blocks for 3 s fails.
type counting struct {
	net.Conn
	n    *atomic.Int64
	most int64
}

func (c *counting) Write(p []byte) (int, error) {
	if c.n.Load() >= c.most {
		return 0, io.ErrShortWrite
	}
	c.SetWriteDeadline(time.Now().Add(3 * time.Second))
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// inUse returns the memory in use, in bytes.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
