package confine

import (
	"os"
	"strings"
)

// Processor returns the name of the host's processor model. A snapshot of a virtualized machine depends on it.
func Processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Trim(name, "\t :\n")
		}
	}
	return ""
}
