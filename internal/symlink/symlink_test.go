package symlink

import "testing"

func TestStaysInside(t *testing.T) {
	for target, want := range map[string]bool{
		"x": true, "./x": true, "../x": true, "../../x": true, "../../../x": false, "x/..": false, "x/../..": false,
		"/x": false, "": false, "..": true, "../..": true, "../../..": false, "a/b/../c": false, "a\x00b": false,
	} {
		if StaysInside("p/q/link", target) != want {
			t.Errorf("%q: want %v", target, want)
		}
	}
}
