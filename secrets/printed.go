package secrets

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
)

// Printed searches a step's output, as it arrives and before it is masked, and reports the values in it as Saw does. The
// redactor's findings in a record do not suffice: they do not distinguish a value from its marker, which a step may
// legitimately print, for instance from a response that the gateway masked. It is not safe for concurrent use.
type Printed struct {
	issuer *Issuer
	step   string
	watch  *redact.Watch
	tail   []byte // the last bytes written
}

// printedTail is the size of the last output that Pause searches.
const printedTail = 64 << 10

// Printed returns a Printed for one stream of a step.
func (i *Issuer) Printed(step string) *Printed {
	return &Printed{issuer: i, step: step, watch: i.cfg.Redactor.Watch()}
}

// Write searches the next piece. seq is that of the record with the piece, or of one near it.
func (p *Printed) Write(b []byte, seq uint64) {
	found, _ := p.watch.Write(b)
	p.report(found, seq)
	p.tail = append(p.tail, b...)
	if more := len(p.tail) - printedTail; more > 0 {
		p.tail = p.tail[:copy(p.tail, p.tail[more:])]
	}
}

// Pause is called after a short time without output. It finds values that further output could extend.
func (p *Printed) Pause(seq uint64) { p.report([][]byte{p.tail}, seq) }

// End is called at the end of the stream.
func (p *Printed) End(seq uint64) { p.report(p.watch.End(), seq) }

func (p *Printed) report(found [][]byte, seq uint64) {
	for _, text := range found {
		p.issuer.Saw(audit.KindOutput, p.step, p.issuer.Values(text), seq)
	}
}
