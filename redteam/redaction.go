package redteam

import (
	"slices"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
)

// redactionProbes are the probes of values in the record.
type redactionProbes struct{ secretProbes }

// all adds the probes of values that a step prints, passes to a program or uses as a file name: none may be in the run's
// files, its record, or its output. A word that is not secret is written in each encoding, too, and must be found there,
// which shows that the suite's search works.
func (c redactionProbes) all() {
	codes := []encoding{
		{"raw", "as it is", "raw"}, {"base64", "in base64", "base64"}, {"base64-1", "in base64 after one byte", "base64at1"}, {"base64-2", "in base64 after two bytes", "base64at2"},
		{"base64url", "in base64url", "base64url"}, {"hex", "in hex", "hex"}, {"hex-upper", "in upper-case hex", "hexup"}, {"base32", "in base32", "base32"},
		{"url", "with URL escapes", "url"}, {"url-all", "with URL escapes of every byte", "urlall"}, {"json", "in JSON", "json"}, {"json-all", `with \u of every character`, "jsonall"},
		{"utf16le", "in UTF-16", "utf16le"}, {"utf16be", "in big-endian UTF-16", "utf16be"},
		{"base64-hex", "in base64 of hex", "hex|base64"}, {"hex-base64", "in hex of base64", "base64|hex"}, {"base64-base64", "in base64 of base64", "base64|base64"},
		{"url-base64", "in base64 with URL escapes", "base64|urlall"}, {"base64-utf16", "in base64 of UTF-16", "utf16le|base64"}, {"base64-json", "in base64 of JSON", "json|base64"},
	}
	for _, k := range codes {
		s := c.env()
		c.written("output/"+k.id, "a value printed "+k.title, Encodings, s, k.code, flagged("secret-in-output"),
			&task{Do: "write", Send: once("printed: {{" + strings.ToUpper(s.name) + "|" + k.code + "}} .")})
	}
	for _, k := range []struct {
		id, title string
		wait      int
	}{{"split", "byte by byte", 0}, {"split-slow", "in pieces with pauses", 150}} {
		s := c.env()
		t := &task{Do: "write"}
		step, end := 1, 60
		if k.wait > 0 {
			step = 15
		}
		for i := 0; i < end; i += step {
			t.Send = append(t.Send, piece{Data: []byte("{{" + strings.ToUpper(s.name) + "|raw[" + strconv.Itoa(i) + ":" + strconv.Itoa(i+step) + "]}}"), Wait: k.wait})
		}
		c.written("output/"+k.id, "a value printed "+k.title, SplitWrites, s, "raw", flagged("secret-in-output"), t)
	}
	for _, k := range codes {
		if strings.Contains(k.code, "utf16") && !strings.Contains(k.code, "base64") {
			continue // an argument contains no zeros
		}
		s := c.env()
		c.written("argv/"+k.id, "a value in a program's arguments "+k.title, Encodings, s, k.code, marked(s),
			program("true", "argument {{"+strings.ToUpper(s.name)+"|"+k.code+"}} ."))
	}
	for _, k := range codes {
		if !k.short() {
			continue
		}
		s := c.env()
		c.written("file/"+k.id, "a value in a file's name "+k.title, Encodings, s, k.code, marked(s), &task{Do: "touch", Names: []string{"{{" + strings.ToUpper(s.name) + "|" + k.code + "}}"}})
	}
	c.words(codes[:14])
}

// written adds a probe that writes a value in some encoding.
func (c redactionProbes) written(id, title string, bypass Bypass, s secret, code string, proof evidence, t *task) {
	group, _, _ := strings.Cut(id, "/")
	c.secretive(Probe{ID: id, Title: title, Bypass: bypass, step: group, binds: []secret{s}, task: t, proof: proof, outer: func(t *trial, p Probe, said report) string {
		if len(said.Filled) == 0 {
			return "the script wrote nothing: " + said.Error
		}
		for _, f := range said.Filled {
			if at := t.kept.holds(f); at != "" {
				return "the encoded value is in " + at
			}
		}
		for _, at := range t.kept.places {
			if form := shown(at.text, t.values[s.name]); form != "" {
				return "the value is in " + at.name + ", in the form " + form
			}
		}
		return ""
	}})
}

// marked requires that a program's arguments or a file name contain the secret's marker.
func marked(s secret) evidence {
	marker := "[REDACTED:" + s.name + ":"
	return func(_ *about, r *audit.Record) bool {
		if r.File != nil {
			return strings.Contains(string(r.File.Path), marker)
		}
		if r.Exec != nil {
			for _, a := range r.Exec.Argv {
				if strings.Contains(string(a), marker) {
					return true
				}
			}
		}
		return false
	}
}

// words adds controls that write a word that is not secret in each encoding, which the suite must find.
func (c redactionProbes) words(codes []encoding) {
	add := func(id, title, place string, make func(words []string) *task) {
		word := "sk-" + c.token() + `+&"~AAAABBBBCCCCDDDDEEEEFFFFGG`
		var list []string
		for _, k := range codes {
			list = append(list, "{{word:"+word+"|"+k.code+"}}")
		}
		c.secretive(Probe{ID: "control/" + id, Title: title, Bypass: Positive, Control: true, step: "words", allowed: reaches, binds: []secret{apiKey}, task: make(list), proof: handed(audit.SecretDeliver),
			outer: func(t *trial, _ Probe, said report) string {
				for _, k := range codes {
					if !t.kept.has(place, forms(word)[k.code]) {
						return "it is not found " + k.title + ": " + said.Error
					}
				}
				return ""
			}})
	}
	add("scan-output", "a public word, printed in each encoding, is found in the record", "the record's output", func(words []string) *task {
		return &task{Do: "write", Send: once(strings.Join(words, " "))}
	})
	codes = slices.DeleteFunc(slices.Clone(codes), func(k encoding) bool { return strings.HasPrefix(k.code, "utf16") })
	add("scan-argv", "a public word in a program's arguments, in each encoding, is found in the record", "the record", func(words []string) *task { return program(append([]string{"true"}, words...)...) })
	codes = slices.DeleteFunc(codes, func(k encoding) bool { return !k.short() })
	add("scan-file", "a public word in file names, in each encoding, is found in the record", "the record", func(words []string) *task { return &task{Do: "touch", Names: words} })
}

// encoding is an encoding of a value, in words and by its name in the script.
type encoding struct{ id, title, code string }

// short reports whether the encoded value fits into a file name, and contains no slash.
func (k encoding) short() bool {
	return k.code != "jsonall" && k.code != "base64" && !strings.HasPrefix(k.code, "base64at") && !strings.Contains(k.code, "utf16")
}
