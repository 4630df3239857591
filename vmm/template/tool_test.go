package template

import "testing"

// TestTool: the error of a program that fails names the cause, which is seldom in the last lines of mmdebstrap's output.
func TestTool(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"errors": {
			"printf 'Ign:1 http://deb\\nE: Failed to fetch http://deb\\nW: hook\\nI: got SIGPIPE\\nI: waiting\\nI: ended\\nE: failed to run\\n'; exit 25",
			"sh: exit status 25: E: Failed to fetch http://deb; E: failed to run",
		},
		"many errors": {"for i in 1 2 3 4 5; do echo E: $i; done; exit 1", "sh: exit status 1: E: 1; E: 2; E: 3; E: 4"},
		"none":        {"for i in 1 2 3 4 5; do echo $i; done; exit 1", "sh: exit status 1: 2; 3; 4; 5"},
		"silent":      {"exit 3", "sh: exit status 3: "},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tool(t.Context(), "sh", "-c", c.script); err == nil || err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	if err := tool(t.Context(), "true"); err != nil {
		t.Error(err)
	}
}
