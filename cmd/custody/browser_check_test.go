package main

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
)

// give passes a file to the screen that checks bundles, by choosing or dropping it.
func give(p *browser.Page, name string, data []byte, dropped bool) {
	how := `(i => { i.files = dt.files; i.dispatchEvent(new Event("change", {bubbles: true})) })(document.querySelector("#bundle"))`
	if dropped {
		how = `document.querySelector(".box.drop").dispatchEvent(new DragEvent("drop", {bubbles: true, cancelable: true, dataTransfer: dt}))`
	}
	browser.Eval[bool](p, `(async () => { const dt = new DataTransfer();
		dt.items.add(new File([Uint8Array.from(atob(`+browser.Quote(base64.StdEncoding.EncodeToString(data))+`), c => c.charCodeAt(0))], `+browser.Quote(name)+`)); `+how+`; return true })()`)
}

// TestBrowserCheck: a bundle and the proof of a record are checked in the page, under keys that are pinned there, and
// nothing of them is sent.
func TestBrowserCheck(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	run := sampleruns.Record(t, d.home, sampleruns.Large(500))
	s := d.serving()
	file := filepath.Join(t.TempDir(), "b.tar")
	d.must(0, "bundle", run, "-o", file)
	bundle, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(filepath.Join(d.home, "keys", "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	p := browser.Open(t, s.link, 1280, 800)
	p.WaitTextIn("h1", "Runs")
	visit(p, spot{"check", "#/check"})
	p.WaitTextIn("h1", "Check a bundle")
	proof := []byte(browser.Eval[string](p, `fetch(`+browser.Quote("/api/v1/runs/"+run+"/records/7/proof")+`).then(r => r.text())`))
	browser.Eval[bool](p, `performance.clearResourceTimings(), true`)

	give(p, "b.tar", bundle, false)
	p.WaitTextIn(".verdict", "It cannot be judged", "not trusted here")
	p.WaitTextIn(".trusted", "No key of yours", strings.TrimSpace(string(public)), "Fingerprint")
	p.ClickText(".offered button", "I have compared the fingerprint")
	p.WaitTextIn(".verdict", "It holds", "b.tar")
	p.WaitTextIn(".facts", run, "Head", "Records", "1 entry")

	at := bytes.Index(bundle, []byte(`"kind":"output"`))
	altered := bytes.Clone(bundle)
	altered[at+9]++
	give(p, "altered.tar", altered, true)
	p.WaitTextIn(".verdict", "It does not hold", "altered.tar", "record was altered")
	give(p, "cut.tar", bundle[:len(bundle)-512], true)
	p.WaitTextIn(".verdict", "It does not hold", "it does not end as bundles do")
	give(p, "proof.json", proof, false)
	p.WaitTextIn(".verdict", "It holds", "proof.json")
	give(p, "spaced.json", bytes.Replace(proof, []byte(","), []byte(", "), 1), false)
	p.WaitTextIn(".verdict", "It does not hold", "spaced.json")
	if sent := browser.Eval[[]string](p, `performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.includes("/assets/"))`); len(sent) > 0 {
		t.Errorf("while bundles were checked, the page asked for %v", sent)
	}
}
