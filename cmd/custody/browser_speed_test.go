package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"

	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
)

// painting notes when the lanes were on the screen, in milliseconds since the navigation began.
const painting = `window.custodyPainted = 0; (function look() {
	const words = document.querySelector(".under-words")?.innerText ?? "Reading", rows = document.querySelectorAll(".records .rrow").length;
	if (words.startsWith("Reading") || rows === 0) return requestAnimationFrame(look);
	requestAnimationFrame(() => setTimeout(() => window.custodyPainted = performance.now()));
})()`

// TestBrowserSpeed prints the figures of docs/performance.md about the page. It measures, and judges nothing: the
// machine may be busy. CUSTODY_FIGURES=1 go test -v -run TestBrowserSpeed
func TestBrowserSpeed(t *testing.T) {
	if os.Getenv("CUSTODY_FIGURES") == "" {
		t.Skip("figures are printed when CUSTODY_FIGURES is set")
	}
	d := newDoor(t)
	const records = 100_000
	run := sampleruns.Record(t, d.home, sampleruns.Large(records))
	t.Logf("%d records in the run; load %s", d.runs()[0].Events, load(t))
	token := d.newToken("figures", "auditor")
	var cold, warm []float64
	for range 3 {
		s := d.serving()
		p := browser.Open(t, s.base, 1440, 900)
		p.Allow("status of 401")
		p.Prepare(painting)
		p.Type("#token", token+"\r")
		p.WaitTextIn("[aria-label=Runs]", "proof holds") // nothing is checked meanwhile
		for i := range 4 {
			p.Go("about:blank")
			p.Go(s.base + "#/runs/" + run)
			p.Wait(`window.custodyPainted`)
			ms := browser.Eval[float64](p, `window.custodyPainted`)
			if i == 0 {
				cold = append(cold, ms)
			} else {
				warm = append(warm, ms)
			}
		}
		if len(cold) == 3 {
			motion(t, p)
		}
		s.stop()
	}
	t.Logf("first meaningful paint, ms from navigation to lanes and records: run not in the memory of the server %.0f, in it %.0f", cold, warm)
}

// motion measures how the page moves.
func motion(t *testing.T, p *browser.Page) {
	box := browser.Eval[[]float64](p, `(b => [b.left, b.top, b.width, b.height])(document.querySelector(".lanes .plot").getBoundingClientRect())`)
	list := browser.Eval[[]float64](p, `(b => [b.left + b.width / 2, b.top + b.height / 2])(document.querySelector(".records").getBoundingClientRect())`)
	at := func(i int) float64 { return box[0] + box[2]*(0.5+0.45*float64((i*7)%200-100)/100) }
	button := func(kind input.DispatchMouseEventType, x, y float64) {
		p.Mouse(input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: input.MouseButtonLeft, Buttons: 1, ClickCount: 1})
	}
	button(input.DispatchMouseEventTypeMousePressed, at(0), box[1]+8)
	t.Log("scrubbing: ", measured(p, func(i int) { button(input.DispatchMouseEventTypeMouseMoved, at(i), box[1]+8) }))
	button(input.DispatchMouseEventTypeMouseReleased, at(0), box[1]+8)
	wheel := func(x, y, by float64) {
		p.Mouse(input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseWheel, X: x, Y: y, DeltaX: 0.001, DeltaY: by})
	}
	t.Log("zooming the lanes: ", measured(p, func(i int) { wheel(box[0]+box[2]/2, box[1]+60, float64(100-200*(i/20%2))) }))
	t.Log("scrolling the list: ", measured(p, func(i int) { wheel(list[0], list[1], 400) }))
}

// measured moves for some seconds and returns how often the page was drawn.
func measured(p *browser.Page, move func(i int)) string {
	browser.Eval[bool](p, `window.custodyFrames = [], window.custodyStop = false, (function frame(t) { custodyFrames.push(t); if (!custodyStop) requestAnimationFrame(frame) })(performance.now()), true`)
	for i, end := 0, time.Now().Add(6*time.Second); time.Now().Before(end); i++ {
		move(i)
	}
	at := browser.Eval[[]float64](p, `(custodyStop = true, custodyFrames)`)
	var gaps []float64
	for i := 1; i < len(at); i++ {
		gaps = append(gaps, at[i]-at[i-1])
	}
	slices.Sort(gaps)
	return fmt.Sprintf("%.0f frames a second; a frame took %.0f ms at the median, %.0f at the 95th percentile, %.0f at most", float64(len(gaps))/(at[len(at)-1]-at[0])*1000,
		gaps[len(gaps)/2], gaps[len(gaps)*95/100], gaps[len(gaps)-1])
}

func load(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
