package sandbox

import (
	"slices"
	"testing"
)

func TestEnviron(t *testing.T) {
	st := Step{Env: []string{"A=1", "B=2", "AB=3"}, Vars: []string{"A=4=5", "C="}}
	if got, want := st.environ(), []string{"B=2", "AB=3", "A=4=5", "C="}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if st.Env[0] != "A=1" {
		t.Error("Env has changed")
	}
}
