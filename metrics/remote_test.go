package metrics_test

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/custody-project/custody/metrics"
)

// TestRemote: the metrics of another process's pool are served beside those of this one; without an answer they are absent.
func TestRemote(t *testing.T) {
	there, here := metrics.New("1"), metrics.New("2")
	pool := there.Pool([]string{"none_warm"}, []string{"used"}, func() (idle, leased, making, ending int) { return 1, 2, 3, 4 })
	pool.Hit()
	pool.Miss("none_warm")
	there.Silent()
	var failure error
	here.Remote(func(context.Context) ([]byte, error) {
		if failure != nil {
			return nil, failure
		}
		return there.PoolText()
	})
	scrape := func() string {
		answer := httptest.NewRecorder()
		here.Handler().ServeHTTP(answer, httptest.NewRequest("GET", metrics.Path, nil))
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.Code != 200 {
			t.Fatalf("%d, %v: %s", answer.Code, err, text)
		}
		return string(text)
	}
	text := scrape()
	for _, line := range []string{"custody_pool_hits_total 1\n", "custody_silent_workers_total 1\n", `custody_pool_misses_total{reason="none_warm"} 1`, `custody_pool_sandboxes{state="ending"} 4`, `custody_build_info{version="2"} 1`} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in %s", line, text)
		}
	}
	if strings.Contains(text, `version="1"`) {
		t.Error("other metrics of the process are served as well")
	}
	failure = errors.New("no answer")
	if text := scrape(); strings.Contains(text, "custody_pool_") || !strings.Contains(text, "custody_build_info") {
		t.Errorf("without an answer: %s", text)
	}
}
