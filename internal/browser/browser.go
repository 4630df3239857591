// Package browser drives Debian's Chromium in tests: one headless browser a test, its console and
// its requests watched, with an empty profile that goes away with it.
package browser

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Program is where Debian's package chromium puts the browser.
const Program = "/usr/bin/chromium"

// Action is a step in the browser.
type Action = chromedp.Action[chromedp.Void]

// Option is an option of the browser.
type Option = chromedp.ExecAllocatorOption

// Trust has the browser accept the certificates of a public key.
func Trust(c *x509.Certificate) Option {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return chromedp.Flag("ignore-certificate-errors-spki-list", base64.StdEncoding.EncodeToString(sum[:]))
}

// Page is a tab of a browser of the test's own. Its methods fail the test where something does not work.
type Page struct {
	t testing.TB
	*tab
}

// tab is what the pages of a test and its subtests share.
type tab struct {
	ctx      context.Context
	host     string // host:port that all requests have to go to
	clicks   int
	problems problems
}

// problems collects what a page did and must not do. Its methods are safe for concurrent use.
type problems struct {
	mu      sync.Mutex // guards the fields below
	list    []string
	allowed []string // texts; a problem that contains one is ignored
}

func (p *problems) note(problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, problem)
}

func (p *problems) allow(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed = append(p.allowed, part)
}

func (p *problems) noted() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.list), func(problem string) bool {
		return slices.ContainsFunc(p.allowed, func(part string) bool { return strings.Contains(problem, part) })
	})
}

// In returns the page as a subtest has it.
func (p *Page) In(t testing.TB) *Page { return &Page{t: t, tab: p.tab} }

// patience is how long one step may take: the machine may be busy.
const patience = 30 * time.Second

// Open starts a browser with a window of so many pixels and opens address. Until the test's end there must
// be no warning or error on the console, and no request to another host than address's.
func Open(t testing.TB, address string, width, height int, more ...Option) *Page {
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
	options = append(options, more...)
	browser, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, closeTab := chromedp.NewContext(browser)
	p := &Page{t: t, tab: &tab{ctx: ctx, host: at.Host}}
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
	if err := p.enable(); err != nil {
		t.Fatal("watch the browser:", err)
	}
	p.Do(chromedp.EmulateViewport(int64(width), int64(height)))
	p.Go(address)
	return p
}

// enable has the browser report what watch needs.
func (p *tab) enable() error {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	if err == nil {
		_, err = chromedp.Call(ctx, cdplog.Enable, struct{}{})
	}
	return err
}

// watch notes what a page must not do.
func (p *tab) watch(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.problems.note("exception: " + e.ExceptionDetails.Text + " " + arguments([]*runtime.RemoteObject{e.ExceptionDetails.Exception}))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			p.problems.note(fmt.Sprintf("console %s: %s", e.Type, arguments(e.Args)))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			p.problems.note(fmt.Sprintf("log %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *page.EventJavascriptDialogOpening:
		p.problems.note(fmt.Sprintf("a dialog: %s %q", e.Type, e.Message))
		go chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
	case *network.EventRequestWillBeSent:
		at, err := url.Parse(e.Request.URL)
		if err != nil || at.Host != p.host && !slices.Contains([]string{"data", "blob", "about"}, at.Scheme) {
			p.problems.note("a request to another host: " + e.Request.URL)
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

// Allow ignores problems that contain part, such as requests that fail because the test makes the server fail.
func (p *Page) Allow(part string) { p.problems.allow(part) }

// Problems returns what was noted so far.
func (p *Page) Problems() []string { return p.problems.noted() }

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
func (p *tab) around() string {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.hash + "\n" + (document.querySelector("[role=tabpanel]")?.innerText.slice(0, 1000) ?? "") + "\n---\n" + (document.body?.innerText.slice(0, 3000) ?? "")`))
	if err != nil {
		return strings.Join(p.problems.noted(), "\n")
	}
	return "the page shows:\n" + text + "\n" + strings.Join(p.problems.noted(), "\n")
}

// Go opens another address. One that differs in its fragment only changes the page that is there.
func (p *Page) Go(address string) {
	p.t.Helper()
	p.Do(chromedp.Navigate(address))
}

// Front has the browser show the tab again after another one was opened: what is not shown is not drawn.
func Front(p *Page) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, page.BringToFront, struct{}{}); err != nil {
		p.t.Fatal("show the tab:", err)
	}
}

// Reload loads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	p.Do(chromedp.Reload())
}

// Click clicks the first element that the CSS selector finds, with the mouse, once it is in sight.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.ClickOn(`document.querySelector(` + Quote(selector) + `)`)
}

// ClickText clicks the first element of the selector whose words begin with text.
func (p *Page) ClickText(selector, text string) {
	p.t.Helper()
	p.ClickOn(`[...document.querySelectorAll(` + Quote(selector) + `)].find(e => (e.ariaLabel || e.innerText || "").trim().startsWith(` + Quote(text) + `))`)
}

// ClickWith clicks the first element of the selector that shows text.
func (p *Page) ClickWith(selector, text string) {
	p.t.Helper()
	p.ClickOn(`[...document.querySelectorAll(` + Quote(selector) + `)].find(e => (e.innerText || "").includes(` + Quote(text) + `))`)
}

// ClickOn clicks the middle of the element that the JavaScript expression gives, once it is there and nothing covers it.
func (p *Page) ClickOn(element string) {
	p.t.Helper()
	p.Do(chromedp.MouseClickXY(p.middle(element)))
	p.clicks++
}

// Clicks is how often the mouse was clicked so far.
func (p *Page) Clicks() int { return p.clicks }

// middle brings an element into sight and returns where its middle stands, once that is at rest.
func (p *Page) middle(element string) (x, y float64) {
	p.t.Helper()
	const covered = `(() => {
		const e = %s;
		if (!e) return null;
		e.scrollIntoView({block: "nearest", inline: "nearest"});
		const b = e.getBoundingClientRect(), x = b.left + b.width / 2, y = b.top + b.height / 2;
		const top = document.elementFromPoint(x, y);
		return b.width > 0 && top && (e === top || e.contains(top) || top.contains(e)) ? [x, y] : null;
	})()`
	var last []float64
	p.Until(element+" to be in sight", func() bool {
		at := Eval[[]float64](p, fmt.Sprintf(covered, element))
		rests := at != nil && slices.Equal(at, last)
		last = at
		return rests
	})
	return last[0], last[1]
}

// ClickAt clicks a point of the window.
func (p *Page) ClickAt(x, y float64) {
	p.t.Helper()
	p.Do(chromedp.MouseClickXY(x, y))
	p.clicks++
}

// Mouse moves the mouse, its buttons or its wheel, and returns when the page has taken it.
func (p *Page) Mouse(what input.DispatchMouseEventParams) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, input.DispatchMouseEvent, what); err != nil {
		p.t.Fatal("the mouse:", err)
	}
}

// Prepare has a script run in each page that is opened from now on, before its own.
func (p *Page) Prepare(script string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		p.t.Fatal("prepare the page:", err)
	}
}

// Downloads has the browser keep what it downloads in a directory.
func (p *Page) Downloads(dir string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir}); err != nil {
		p.t.Fatal("downloads:", err)
	}
}

// Type sends text as keys to the element that the CSS selector finds.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.Do(chromedp.SendKeys(chromedp.CSS(selector), text, chromedp.NodeVisible))
}

// Keys sends keys to whatever has the focus: text, or the names of package kb.
func (p *Page) Keys(keys string) {
	p.t.Helper()
	p.Do(chromedp.KeyEvent(keys))
}

// Text waits for an element and returns what it shows.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	p.Wait(`document.querySelector(` + Quote(selector) + `)?.innerText.trim()`)
	return Eval[string](p, `document.querySelector(`+Quote(selector)+`)?.innerText ?? ""`)
}

// Wait waits until the JavaScript expression is true. The question comes from outside the page, whose policy
// does not allow text to become code.
func (p *Page) Wait(expression string) {
	p.t.Helper()
	p.Until(expression, func() bool { return Eval[bool](p, `!!(`+expression+`)`) })
}

// Until waits until yes returns true. what describes that in the error.
func (p *Page) Until(what string, yes func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !yes(); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("the browser: waited in vain for %s\n%s", what, p.around())
		}
	}
}

// WaitText waits until the page shows all the texts together.
func (p *Page) WaitText(texts ...string) {
	p.t.Helper()
	p.WaitTextIn("body", texts...)
}

// WaitTextIn waits until the first element of the selector shows all the texts together.
func (p *Page) WaitTextIn(selector string, texts ...string) {
	p.t.Helper()
	list, err := json.Marshal(texts)
	if err != nil {
		p.t.Fatal(err)
	}
	text := `document.querySelector(` + Quote(selector) + `)?.innerText`
	all := `(t => t !== undefined && ` + string(list) + `.every(w => t.includes(w)))(` + text + `)`
	for deadline := time.Now().Add(patience); !Eval[bool](p, all); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("the browser: waited in vain for %s in %s, which has:\n%s\n%s", list, selector, Eval[string](p, text+` ?? "nothing"`), p.around())
		}
	}
}

// Size makes the window's inside so many pixels wide and high.
func (p *Page) Size(width, height int) {
	p.t.Helper()
	p.Do(chromedp.EmulateViewport(int64(width), int64(height)))
	p.Wait(fmt.Sprintf("innerWidth === %d && innerHeight === %d", width, height))
}

// Quote writes a text as JavaScript has it.
func Quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can be written
	}
	return string(b)
}
