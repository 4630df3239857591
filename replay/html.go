package replay

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/custody-project/custody/store"
)

// Verdict is what a page says of the record that it shows.
type Verdict struct {
	Good bool // it was verified
	Text string
}

// classes are the styles of a line in a page.
var classes = map[style]string{
	bold: "bold", dim: "dim", red: "red", green: "green", yellow: "yellow", blue: "blue", magenta: "magenta", cyan: "cyan", alarm: "alarm",
}

const pageStyle = `
:root { color-scheme: light dark }
body { font: 14px/1.5 system-ui, sans-serif; margin: 1.5rem }
h1 { font-size: 1.2rem }
pre { font: 12px/1.45 ui-monospace, monospace; overflow-x: auto }
.verdict { border: 2px solid; padding: .5rem .75rem; overflow-wrap: anywhere }
.good { color: #176b2c }
.bad, .alarm { background: #b3261e; color: #fff; font-weight: bold }
.bold { font-weight: bold }
.dim { opacity: .65 }
.red { color: #b3261e } .green { color: #1b7f37 } .yellow { color: #946200 }
.blue { color: #1f5fbf } .magenta { color: #8b3fa8 } .cyan { color: #0b7285 }
@media (prefers-color-scheme: dark) {
	.good, .green { color: #6fdc8c } .red { color: #ff8389 } .yellow { color: #f1c21b }
	.blue { color: #78a9ff } .magenta { color: #d4a5ff } .cyan { color: #3ddbd9 }
}
`

// HTML writes the timeline as one page that needs no other file. It has no scripts, and its policy (CSP) forbids a browser to load or
// to run anything. Everything from the record is escaped as on a terminal, and then for HTML.
func HTML(w io.Writer, run store.Run, rows Rows, opt Options, v Verdict) error {
	opt.Width, opt.Color, opt.markup = 0, false, true
	sum := sha256.Sum256([]byte(pageStyle))
	class := "verdict bad"
	if v.Good {
		class = "verdict good"
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer"><meta name="viewport" content="width=device-width">
<title>custody %s</title><style>%s</style></head>
<body><h1>Custody run %[2]s</h1>
<p class="%[4]s">%[5]s</p>
<pre>
`, base64.StdEncoding.EncodeToString(sum[:]), page(run.ID), pageStyle, class, page(v.Text))
	if _, err := w.Write(head.Bytes()); err != nil {
		return err
	}
	if err := Timeline(w, run, rows, opt); err != nil {
		return err
	}
	_, err := io.WriteString(w, "</pre></body></html>\n")
	return err
}

// page escapes text for a terminal's reader and for HTML.
func page(text string) string { return html.EscapeString(escape(text)) }

// markup writes a piece, which has been escaped for a terminal, as HTML.
func (l *line) markup(p piece) {
	text := html.EscapeString(p.text)
	if class := classes[p.style]; class != "" && strings.TrimSpace(text) != "" {
		text = `<span class="` + class + `">` + text + `</span>`
	}
	l.out.WriteString(text)
}
