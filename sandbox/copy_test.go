package sandbox

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestProgress: a copy reports its progress after progressFirst and then every progressEvery, and never without a progress function.
func TestProgress(t *testing.T) {
	begin := time.Unix(1e9, 0)
	p := pace{begin.Add(progressFirst)}
	var said []int
	for second := range 35 {
		for range 3 {
			if p.due(begin.Add(time.Duration(second) * time.Second)) {
				said = append(said, second)
			}
		}
	}
	if want := []int{3, 13, 23, 33}; !slices.Equal(said, want) {
		t.Errorf("said after %v s, want %v", said, want)
	}
	if f := (copier{}).reporter("%d %s"); f != nil {
		t.Error("a reporter without a progress function")
	}
}

func TestWarn(t *testing.T) {
	var told []string
	Warn(func(s string) { told = append(told, s) }, slices.Repeat([]string{"x"}, 25))
	if len(told) != maxNotices+1 || !strings.HasPrefix(told[maxNotices], "and 15 more") {
		t.Errorf("told %q", told)
	}
}
