package metrics

import "sync"

const (
	maxNames = 64 // in one set
	maxName  = 64 // bytes
)

// names bounds the number of labels, and replaces those that are not names.
type names struct {
	mu   sync.Mutex // guards seen
	seen map[string]bool
}

func newNames() *names { return &names{seen: map[string]bool{}} }

// bounded returns the label for a name.
func (n *names) bounded(name string) string {
	if !isName(name) {
		return "unnamed"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.seen[name] && len(n.seen) >= maxNames {
		return string(Other)
	}
	n.seen[name] = true
	return name
}

func isName(s string) bool {
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}
