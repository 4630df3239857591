package dnsproxy

import (
	"net/netip"
	"sync"
	"time"

	"github.com/custody-project/custody/netpolicy"
)

// pending is a question on its way to its answer. It belongs to one goroutine at a time.
//
//	read --parse, decide--> posted --Sync--> durable --Open--> answered
//	          |               ^                |
//	          +--> a worker --+                +--> posted again: the policy changed, or Open failed
//	          +--> dropped (the record does not take it)
type pending struct {
	query
	from netip.AddrPort // over UDP
	conn *stream        // over TCP, else nil

	reply  reply
	silent bool // no reply leaves
	seq    uint64
	rule   string // that decided

	// What is opened before the answer leaves.
	open  []netip.Addr
	via   netpolicy.Mode
	life  time.Duration        // from then on; 0 for the sandbox's
	under netpolicy.Generation // of the policy by which it was decided

	packet [maxQuery + 1]byte // one more, to detect what is too long
}

var pendings = sync.Pool{New: func() any { return new(pending) }}

func newPending() *pending { return pendings.Get().(*pending) }

// read takes the packet's first n bytes for the question.
func (p *pending) read(n int) { p.query = parse(p.packet[:n]) }

// proto returns the record's name for the transport of the query.
func (p *pending) proto() string {
	if p.conn != nil {
		return "tcp"
	}
	return "udp"
}

// free ends a question, answered or not.
func (p *pending) free() {
	if p.conn != nil {
		p.conn.done()
	}
	p.query, p.reply, p.conn, p.open, p.rule = query{}, reply{}, nil, nil, ""
	pendings.Put(p)
}
