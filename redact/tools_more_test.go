package redact

import (
	"context"
	"encoding/ascii85"
	"encoding/base32"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"mime/quotedprintable"
	"net/url"
	"strconv"
	"strings"
	"text/template"
)

func perls() []program {
	var list []program
	for _, name := range []string{
		"local $Data::Dumper::Useqq = 1; Dumper($b)", "Dumper($b)", "B::perlstring($b)", `unpack("H*", $b)`, `unpack("B*", $b)`, `join(",", unpack("C*", $b))`, `join(" ", unpack("C*", $b))`, `sprintf("%vd", $b)`,
		`sprintf("%s", join " ", map { sprintf "%02x", ord } split //, $b)`, `join "", map { sprintf "\\x%02x", ord } split //, $b`, `join "", map { sprintf "\\%03o", ord } split //, $b`,
		`encode_base64($b)`, `encode_base64($b, "")`, `(my $u = $b) =~ s/([^A-Za-z0-9\-\._~])/sprintf("%%%02X", ord $1)/ge; $u`, `(my $u = $b) =~ s/([^A-Za-z0-9\-\._~])/sprintf("%%%02x", ord $1)/ge; $u`,
	} {
		list = append(list, program{name: name})
	}
	list = append(list, program{name: "quotemeta($s)", text: true, not: "pem"})
	for _, name := range []string{`JSON::PP->new->ascii->allow_nonref->encode($s)`, `JSON::PP->new->utf8->allow_nonref->encode($s)`, `JSON::PP->new->utf8->pretty->encode({k => [$s]})`} {
		list = append(list, program{name: name, text: true})
	}
	return append(list, program{name: `encode_qp($b)`, wraps: "=\n"}, program{name: `pack("u", $b)`, sole: true, wraps: " "}, program{name: "scalar reverse $b", sole: true, not: "latin cjk emoji mixed binary 5000"})
}

func perlScript(programs []program) string {
	var s strings.Builder
	s.WriteString("use strict; use Data::Dumper; use JSON::PP; use MIME::Base64; use MIME::QuotedPrint; use B; use Encode; local $/;\nmy @p = (\n")
	for _, program := range programs {
		fmt.Fprintf(&s, "sub { my ($b, $s) = @_; %s },\n", program.source())
	}
	return s.String() + `);
my $n = 0;
for my $f (split /\n/, <STDIN>) {
	open my $in, "<:raw", $f or die "$f: $!";
	my $b = <$in>;
	my $s = decode("UTF-8", $b);
	for my $p (0 .. $#p) {
		my $out = $p[$p]->($b, $s);
		$out = encode("UTF-8", $out) if utf8::is_utf8($out);
		print "MARK$n $p\n$out";
	}
	$n++;
}
`
}

func nodes() []program {
	var list []program
	for _, name := range []string{"b.toString('hex')", "b.toString('base64')", "b.toString('base64url')", "JSON.stringify(b)", "Array.from(b).join()", "Array.from(b).join(' ')"} {
		list = append(list, program{name: name})
	}
	for _, name := range []string{
		"JSON.stringify(s)", "JSON.stringify({k: [s]}, null, 2)", "JSON.stringify(JSON.stringify(s))", "encodeURIComponent(s)", "encodeURI(s)", "querystring.escape(s)", "querystring.stringify({k: s})",
		"new URLSearchParams({k: s}).toString()", "'http://h/?k=' + encodeURIComponent(encodeURIComponent(s))", "escape(s)", "Buffer.from(s, 'utf16le')", "Buffer.from(JSON.stringify(s)).toString('base64')",
	} {
		list = append(list, program{name: name, text: true})
	}
	for _, name := range []string{"util.inspect(s)", "util.inspect({k: [s]}, {maxStringLength: null})", "util.inspect(new Map([[s, 1]]))"} {
		list = append(list, program{name: name, text: true, short: 9000, not: "json"})
	}
	list = append(list, program{name: "util.inspect(b)", sole: true, short: 50})
	return append(list, program{name: "Array.from(s, c => '\\\\u{' + c.codePointAt(0).toString(16) + '}').join('')", sole: true, text: true})
}

func nodeScript(programs []program) string {
	var s strings.Builder
	s.WriteString("const fs = require('fs'), util = require('util'), querystring = require('querystring');\nconst programs = [\n")
	for _, program := range programs {
		fmt.Fprintf(&s, "(b, s) => %s,\n", program.source())
	}
	return s.String() + `];
const out = [];
fs.readFileSync(0, 'utf8').trim().split('\n').forEach((f, n) => {
	const b = fs.readFileSync(f), s = b.toString();
	programs.forEach((run, p) => out.push(Buffer.from("MARK" + n + ' ' + p + '\n'), Buffer.from(run(b, s))));
});
fs.writeFileSync(1, Buffer.concat(out));
`
}

func gos() []program {
	format := func(f string) program {
		return program{name: f, do: func(s string) string { return fmt.Sprintf(f, s) }}
	}
	of := func(f string) program {
		return program{name: f + " of []byte", do: func(s string) string { return fmt.Sprintf(f, []byte(s)) }}
	}
	written := func(write func(w io.Writer, s string) error) func(s string) string {
		return func(s string) string {
			var out strings.Builder
			if err := write(&out, s); err != nil {
				panic(err)
			}
			return out.String()
		}
	}
	indented := func(s string) string {
		b, err := json.MarshalIndent(map[string]any{"k": []string{s}}, "", "  ")
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	list := []program{
		format("%q"), format("%+q"), format("%#q"), format("%x"), format("% x"), format("%X"), format("% X"), format("%#x"), format("%# x"), format("%#v"),
		of("%x"), of("% x"), of("%q"), of("%#v"), of("%v"), of("%d"), of("%#x"), of("%# x"), of("%08b"), of("%o"), of("%x and %[1]q"),
		{name: "strconv.QuoteToASCII", do: strconv.QuoteToASCII}, {name: "strconv.QuoteToGraphic", do: strconv.QuoteToGraphic},
		{name: "url.QueryEscape", do: url.QueryEscape}, {name: "url.PathEscape", do: url.PathEscape}, {name: "url.Values", do: func(s string) string { return url.Values{"k": {s}}.Encode() }},
		{name: "url.URL", text: true, do: func(s string) string { return (&url.URL{Scheme: "http", Host: "h", Path: "/a/" + s}).String() }},
		{name: "url.UserPassword", do: func(s string) string {
			return (&url.URL{Scheme: "http", Host: "h", User: url.UserPassword("u", s)}).String()
		}},
		{name: "html.EscapeString", text: true, do: html.EscapeString}, {name: "template.HTMLEscapeString", text: true, word: true, do: template.HTMLEscapeString}, {name: "template.JSEscapeString", text: true, do: template.JSEscapeString}, {name: "template.URLQueryEscaper", do: func(s string) string { return template.URLQueryEscaper(s) }},
		{name: "json.MarshalIndent", text: true, do: indented},
		{name: "xml.EscapeText", text: true, not: "control", do: written(func(w io.Writer, s string) error { return xml.EscapeText(w, []byte(s)) })},
		{name: "csv.Writer", do: written(func(w io.Writer, s string) error { c := csv.NewWriter(w); return c.WriteAll([][]string{{"a", s, "b"}}) })},
		{name: "hex.Dump", do: func(s string) string { return hex.Dump([]byte(s)) }}, {name: "hex.EncodeToString", do: func(s string) string { return hex.EncodeToString([]byte(s)) }},
		{name: "slog.TextHandler", do: written(func(w io.Writer, s string) error {
			return slog.NewTextHandler(w, nil).Handle(context.Background(), logged(s))
		})},
		{name: "quotedprintable.Writer", wraps: "=\r\n", do: written(func(w io.Writer, s string) error {
			q := quotedprintable.NewWriter(w)
			_, err := io.WriteString(q, s)
			return errors.Join(err, q.Close())
		})},
		{name: "ascii85.Encode", sole: true, do: written(func(w io.Writer, s string) error {
			e := ascii85.NewEncoder(w)
			_, err := io.WriteString(e, s)
			return errors.Join(err, e.Close())
		})},
	}
	for name, e := range map[string]interface{ EncodeToString([]byte) string }{
		"base64.StdEncoding": base64.StdEncoding, "base64.RawStdEncoding": base64.RawStdEncoding, "base64.URLEncoding": base64.URLEncoding, "base64.RawURLEncoding": base64.RawURLEncoding, "base32.StdEncoding": base32.StdEncoding, "base32.HexEncoding": base32.HexEncoding,
	} {
		list = append(list, program{name: name, do: func(s string) string { return e.EncodeToString([]byte(s)) }})
	}
	return list
}

// logged is a line of a log without a time.
func logged(s string) slog.Record {
	var r slog.Record
	r.Message = "got"
	r.Add("token", s, "in", map[string]string{"k": s})
	return r
}
