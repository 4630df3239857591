package report

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// setJSON keeps a record's exact bytes, if there is room for them.
func (r *Record) setJSON(body []byte) {
	switch {
	case len(body) > maxJSON:
	case utf8.Valid(body):
		r.JSON = string(body)
	default:
		r.Base64 = base64.StdEncoding.EncodeToString(body)
	}
}

// JSON writes the report as one indented JSON object in ASCII, as schema.json describes it. The
// same report gives the same bytes.
func (r *Report) JSON(w io.Writer) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if _, err := w.Write(ascii(text.Bytes())); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// ascii escapes what is not ASCII in JSON (RFC 8259, section 7), which can only stand in
// strings: so no character of a record can disturb the terminal or editor that shows the file.
func ascii(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r < 0x7f:
			out = append(out, text[0])
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	return out
}

// File is a file of a report.
type File struct {
	Name  string
	Bytes []byte
}

// Files returns the report as a page and as JSON, in that order, named by its framework: soc2.html, soc2.json.
func (r *Report) Files() ([]File, error) {
	var page, data bytes.Buffer
	if err := r.HTML(&page); err != nil {
		return nil, err
	}
	if err := r.JSON(&data); err != nil {
		return nil, err
	}
	return []File{{r.Framework.ID + ".html", page.Bytes()}, {r.Framework.ID + ".json", data.Bytes()}}, nil
}

// piece is a part of a text: as it is, or what stands for a character that cannot be seen.
type piece struct {
	Text string
	Odd  bool
}

// pieces cuts text so that what is written for a character is not mistaken for the same
// letters in the text itself.
func pieces(text string) []piece {
	var list []piece
	add := func(s string, odd bool) {
		if n := len(list); n > 0 && list[n-1].Odd == odd {
			list[n-1].Text += s
		} else if s != "" {
			list = append(list, piece{s, odd})
		}
	}
	start := 0
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r < 0x7f && unicode.IsPrint(r) {
			i += n
			continue
		}
		if shown := visible(text[i : i+n]); shown != text[i:i+n] {
			add(text[start:i], false)
			add(shown, true)
			start = i + n
		}
		i += n
	}
	add(text[start:], false)
	return list
}
