package llm

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/custody-project/custody/audit"
	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/txtar"
)

// fixture is an exchange in testdata: a request line and body, the response's status, fields and body, and the expected
// event.
type fixture struct {
	name    string
	method  string
	path    string
	request []byte
	status  int
	header  http.Header
	body    []byte
	want    []byte
}

// load returns all exchanges in testdata.
func load(t testing.TB) (all []fixture) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no fixtures", err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parts := map[string][]byte{}
		for _, f := range a.Files {
			parts[f.Name] = f.Data
		}
		f := fixture{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), header: http.Header{}, body: parts["body"], want: parts["want"]}
		line, body, _ := bytes.Cut(parts["request"], []byte("\n"))
		f.method, f.path, _ = strings.Cut(string(line), " ")
		f.request = body
		status, fields, _ := strings.Cut(string(parts["head"]), "\n")
		if f.status, err = strconv.Atoi(status); err != nil {
			t.Fatal(file, err)
		}
		for field := range strings.SplitSeq(strings.TrimSpace(fields), "\n") {
			name, value, _ := strings.Cut(field, ": ")
			f.header.Add(name, value)
		}
		all = append(all, f)
	}
	return all
}

// play passes an exchange through a call, with the bodies in pieces of the sizes that cut returns.
func (f *fixture) play(b *Tracker, cut func(left int) int) *audit.LLM {
	c := b.Begin(Request{Method: f.method, Host: "llm.example", Path: f.path})
	pieces(f.request, cut, c.Request)
	c.Response(f.status, f.header)
	pieces(f.body, cut, func(p []byte) { c.Body(p) })
	return c.Finish(nil)
}

// pieces passes p to f in pieces, in a buffer that is overwritten afterwards.
func pieces(p []byte, cut func(left int) int, f func([]byte)) {
	buf := make([]byte, len(p))
	for len(p) > 0 {
		n := copy(buf, p[:cut(len(p))])
		f(buf[:n])
		clear(buf[:n])
		p = p[n:]
	}
}

func atOnce(left int) int { return left }
func byOne(int) int       { return 1 }

// stable removes the fields that vary between runs.
func stable(e *audit.LLM) *audit.LLM {
	c := *e
	c.DurationNS, c.FirstTokenNS, c.Spent = 0, 0, 0
	return &c
}

// wanted parses the expected event of a fixture: arguments must have their own digest, or that of digest_of.
func (f *fixture) wanted(t testing.TB) *audit.LLM {
	var want struct {
		audit.LLM
		Calls []struct {
			audit.ToolCall
			Of *string `json:"digest_of"`
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(f.want, &want); err != nil {
		t.Fatal(f.name, err)
	}
	for _, c := range want.Calls {
		of := string(c.Arguments)
		if c.Of != nil {
			of = *c.Of
		}
		sum := sha256.Sum256([]byte(of))
		c.ToolCall.SHA256 = hex.EncodeToString(sum[:])
		want.ToolCalls = append(want.ToolCalls, c.ToolCall)
	}
	sum := sha256.Sum256(f.request)
	want.ID, want.Host, want.RequestSHA256 = "m1", "llm.example", hex.EncodeToString(sum[:])
	return &want.LLM
}

func same(t *testing.T, got, want *audit.LLM) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		w, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func TestFixtures(t *testing.T) {
	for _, f := range load(t) {
		t.Run(f.name, func(t *testing.T) {
			e := f.play(NewTracker(0, nil), atOnce)
			same(t, stable(e), f.wanted(t))
			if e.DurationNS <= 0 || e.FirstTokenNS > e.DurationNS {
				t.Errorf("took %d ns, first token after %d", e.DurationNS, e.FirstTokenNS)
			}
			content := f.status == 200 && (!e.Stream || e.Error == "" && e.StopReason != "refusal" || len(e.ToolCalls) > 0)
			if (e.FirstTokenNS > 0) != content {
				t.Errorf("first token after %d ns", e.FirstTokenNS)
			}
			if e.Spent != e.InputTokens+e.OutputTokens {
				t.Errorf("spent %d", e.Spent)
			}
		})
	}
}

// The split into pieces does not change the event.
func TestPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	cuts := map[string]func(int) int{
		"bytes":  byOne,
		"random": func(left int) int { return 1 + r.IntN(min(left, 40)) },
		"coarse": func(left int) int { return 1 + r.IntN(min(left, 900)) },
	}
	for _, f := range load(t) {
		for name, cut := range cuts {
			t.Run(f.name+"/"+name, func(t *testing.T) { same(t, stable(f.play(NewTracker(0, nil), cut)), f.wanted(t)) })
		}
	}
}

// Lines may have any line end, begin with a byte order mark, and have comments and other fields between them.
func TestLineEnds(t *testing.T) {
	for _, f := range load(t) {
		if f.header.Get("Content-Type")[:4] != "text" {
			continue
		}
		for name, end := range map[string]string{"CR": "\r", "CRLF": "\r\n"} {
			g := f
			g.body = bytes.ReplaceAll(f.body, []byte("\n"), []byte(end))
			g.body = bytes.ReplaceAll(g.body, []byte("data: "), []byte(": data: {"+end+"id: 1"+end+"retry: 5"+end+"data:"))
			g.body = append([]byte(byteOrderMark), g.body...)
			t.Run(f.name+"/"+name, func(t *testing.T) {
				same(t, stable(g.play(NewTracker(0, nil), atOnce)), f.wanted(t))
				same(t, stable(g.play(NewTracker(0, nil), byOne)), f.wanted(t))
			})
		}
	}
}

type flusher interface {
	io.WriteCloser
	Flush() error
}

// coders are the content codings, each with what the server says.
var coders = map[string]func(io.Writer) flusher{
	"gzip":    func(w io.Writer) flusher { return gzip.NewWriter(w) },
	"x-gzip":  func(w io.Writer) flusher { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) flusher { return zlib.NewWriter(w) },
	"Deflate": func(w io.Writer) flusher { f, _ := flate.NewWriter(w, 5); return f },
	"br":      func(w io.Writer) flusher { return brotli.NewWriter(w) },
	"zstd":    func(w io.Writer) flusher { z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)); return z },
}

func TestCompressed(t *testing.T) {
	for _, f := range load(t) {
		for coding, coder := range coders {
			g := f
			g.header = f.header.Clone()
			g.header.Set("Content-Encoding", coding)
			var packed bytes.Buffer
			w := coder(&packed)
			w.Write(f.body)
			w.Close()
			g.body = packed.Bytes()
			t.Run(f.name+"/"+coding, func(t *testing.T) {
				same(t, stable(g.play(NewTracker(0, nil), atOnce)), f.wanted(t))
				same(t, stable(g.play(NewTracker(0, nil), byOne)), f.wanted(t))
			})
		}
	}
}
