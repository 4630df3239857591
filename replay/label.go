package replay

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
)

// maxLabel bytes of a label are kept.
const maxLabel = 120

// label is what a record is called for short. It holds the guest's text as it is.
func (m *moment) label() audit.Text {
	switch p := m.what.(type) {
	case *audit.Exec:
		return argvLabel(p)
	case *audit.Exit:
		if p.Synthetic {
			return "end unknown"
		}
		return audit.Text("exit " + strconv.Itoa(p.Code))
	case *audit.File:
		if p.To != "" {
			return shorten(string(p.Op) + " " + string(p.Path) + " -> " + string(p.To))
		}
		return shorten(string(p.Op) + " " + string(p.Path))
	case *audit.Flow:
		return shorten(string(p.State) + " " + endpointLabel(p))
	case *audit.DNS:
		return shorten(p.Type + " " + string(p.Name))
	case *audit.HTTP:
		return shorten(string(p.Method) + " " + string(p.Host) + string(p.Path))
	case *audit.LLM:
		return shorten(p.ID + " " + string(p.Model))
	case *audit.Policy:
		return audit.Text("generation " + strconv.FormatUint(uint64(p.Generation), 10))
	case *audit.Probe:
		return shorten(p.Name)
	case *audit.Output:
		return shorten(p.Stream + " " + strconv.Itoa(len(p.Text)) + " bytes")
	case *audit.VM:
		return shorten(p.Op)
	case *audit.Copy:
		return shorten("copy " + p.Direction + " " + string(p.Dir))
	case *audit.Secret:
		return shorten(string(p.Op) + " " + p.Name)
	case *audit.Gap:
		return shorten(string(p.Stage) + ": " + p.Cause)
	case *audit.Finding:
		return shorten(string(p.Rule))
	case *audit.Access:
		return shorten(p.Action + " " + string(p.About))
	case *audit.Lifecycle:
		return shorten(string(p.Phase) + " " + p.Name)
	}
	return audit.Text(m.kind)
}

func endpointLabel(f *audit.Flow) string {
	name := string(f.Name)
	if name == "" {
		name = f.DstIP
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if f.DstPort != 0 {
		name += ":" + strconv.Itoa(f.DstPort)
	}
	return name
}

func argvLabel(e *audit.Exec) audit.Text {
	if len(e.Argv) == 0 {
		return shorten(string(e.Exe))
	}
	var b strings.Builder
	for i, a := range e.Argv {
		if b.Len() > maxLabel {
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(string(a[:min(len(a), maxLabel)]))
	}
	return shorten(b.String())
}

// shorten cuts a label, not within a character.
func shorten(text string) audit.Text {
	if len(text) <= maxLabel {
		return audit.Text(text)
	}
	n := maxLabel
	for n > maxLabel-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	return audit.Text(text[:n] + "…")
}
