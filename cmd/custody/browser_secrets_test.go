package main

import (
	"testing"

	"github.com/custody-project/custody/internal/browser"
)

// TestBrowserSecretReaders: the page names the processes of a run that opened a secret's file, with their programs and arguments.
func TestBrowserSecretReaders(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.env = append(d.env, "TOKEN=a-value-of-the-test")
	d.project(`version: 1
secrets:
  token: {from: "env:TOKEN", deliver: {file: dir/token}}
steps:
  - {name: reads, secrets: [token], run: "cat /run/secrets/dir/token >/dev/null; wc -c </run/secrets/dir/token"}
`)
	d.must(0, "run", "-q")
	s := d.elsewhere().serving("--run", "last")
	p := browser.Open(t, s.link, 1440, 900)
	p.ClickText("[role=tab]", "Secrets")
	p.WaitTextIn(".panel.secrets .readers", "cat[", "/bin/cat", "cat /run/secrets/dir/token", "opened /run/secrets/dir/token", "1 time")
	if after := browser.Eval[int](p, `document.querySelectorAll(".readers .badge").length`); after != 0 {
		t.Errorf("%d openings are said to be after the credential's end", after)
	}
}
