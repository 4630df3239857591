// Package chrome drives Debian's Chromium in tests: one headless browser a test, its console and
// its requests watched, with an empty profile that goes away with it.
package chrome

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Program is where Debian's package chromium puts the browser.
const Program = "/usr/bin/chromium"

// Action is a step in the browser.
type Action = chromedp.Action[chromedp.Void]

// Page is a tab of a browser of the test's own. Its methods fail the test where something does not work.
type Page struct {
	t    testing.TB
	ctx  context.Context
	host string // host:port that all requests have to go to

	mu       sync.Mutex // guards what follows
	problems []string
	allowed  []string
}

// patience is how long one step may take: the machine may be busy.
const patience = 30 * time.Second

// Open starts a browser with a window of so many pixels and opens address. Until the test's end there must
// be no warning or error on the console, and no request to another host than address's.
func Open(t testing.TB, address string, width, height int) *Page {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(Program); err != nil {
		t.Fatalf("the tests need Debian's package chromium: %v", err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(Program), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.WindowSize(width, height), chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	browser, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, closeTab := chromedp.NewContext(browser)
	p := &Page{t: t, ctx: ctx, host: at.Host}
	t.Cleanup(func() {
		end, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := chromedp.Cancel(end); err != nil { // waits until the browser has ended
			t.Error("the browser's end:", err)
		}
		closeTab()
		stop()
		for _, problem := range p.Problems() {
			t.Error("the browser: " + problem)
		}
	})
	if err := chromedp.Listen(ctx, p.watch); err != nil {
		t.Fatal("start the browser:", err)
	}
	p.enable()
	p.Do(chromedp.EmulateViewport(int64(width), int64(height)))
	p.Go(address)
	return p
}

// enable has the browser tell of what watch wants to know.
func (p *Page) enable() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	if err == nil {
		_, err = chromedp.Call(ctx, cdplog.Enable, struct{}{})
	}
	if err != nil {
		p.t.Fatal("watch the browser:", err)
	}
}

// watch notes what a page must not do.
func (p *Page) watch(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.note("exception: " + e.ExceptionDetails.Text + " " + arguments([]*runtime.RemoteObject{e.ExceptionDetails.Exception}))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			p.note(fmt.Sprintf("console %s: %s", e.Type, arguments(e.Args)))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			p.note(fmt.Sprintf("log %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		at, err := url.Parse(e.Request.URL)
		if err != nil || at.Host != p.host && !slices.Contains([]string{"data", "blob", "about"}, at.Scheme) {
			p.note("a request to another host: " + e.Request.URL)
		}
	}
}

func arguments(args []*runtime.RemoteObject) string {
	var words []string
	for _, a := range args {
		if a == nil {
			continue
		}
		words = append(words, strings.TrimSpace(string(a.Value)+" "+a.Description))
	}
	return strings.Join(words, " ")
}

func (p *Page) note(problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range p.allowed {
		if strings.Contains(problem, part) {
			return
		}
	}
	p.problems = append(p.problems, problem)
}

// Allow has problems that contain part be none: where a test has the server fail the browser says so.
func (p *Page) Allow(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed = append(p.allowed, part)
}

// Problems returns what was noted so far.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

// Do carries out actions.
func (p *Page) Do(actions ...Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("the browser: %v\n%s", err, p.around())
	}
}

// Run carries out an action and returns what it gives.
func Run[T any](p *Page, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatalf("the browser: %v\n%s", err, p.around())
	}
	return v
}

// Eval evaluates a JavaScript expression; a promise is waited for.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	return Run(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// around is what the page shows, for the words of a failure.
func (p *Page) around() string {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText.slice(0, 4000) : ""`))
	if err != nil {
		return strings.Join(p.Problems(), "\n")
	}
	return "the page shows:\n" + text + "\n" + strings.Join(p.Problems(), "\n")
}

// Go opens another address. One that differs in its fragment only changes the page that is there.
func (p *Page) Go(address string) {
	p.t.Helper()
	p.Do(chromedp.Navigate(address))
}

// Click clicks the first element that the CSS selector finds, once it is visible.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.Do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// Type sends text as keys to the element that the CSS selector finds.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.Do(chromedp.SendKeys(chromedp.CSS(selector), text, chromedp.NodeVisible))
}

// Text waits for an element and returns what it shows.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	return Run(p, chromedp.Text(chromedp.CSS(selector), chromedp.NodeVisible))
}

// Wait waits until the JavaScript expression is true.
func (p *Page) Wait(expression string) {
	p.t.Helper()
	Run(p, chromedp.Poll[bool](`!!(`+expression+`)`, chromedp.WithPollingTimeout(patience-time.Second)))
}

// WaitText waits until the page shows text.
func (p *Page) WaitText(text string) {
	p.t.Helper()
	p.Wait(`document.body && document.body.innerText.includes(` + quote(text) + `)`)
}

// Shot takes a picture of the window, as PNG. It is also kept below the directory that CUSTODY_SHOTS names, if it does.
func (p *Page) Shot(name string) []byte {
	p.t.Helper()
	png := Run(p, chromedp.CaptureScreenshot())
	if dir := os.Getenv("CUSTODY_SHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	return png
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can be written
	}
	return string(b)
}
