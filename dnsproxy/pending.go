package dnsproxy

import (
	"net/netip"
	"sync"
	"time"

	"github.com/custody-project/custody/netpolicy"
)

// pending is a query that is being answered. Only one goroutine at a time uses it.
//
//		read --parse, decide--> posted --Sync--> durable --Open--> answered
//		          |               ^                |
//		          +--> a worker --+                +--> posted again: the policy changed, or Open failed
//	                        +--> dropped (the recorder did not accept it)
type pending struct {
	query
	from netip.AddrPort // over UDP
	conn *stream        // over TCP, else nil

	reply  reply
	silent bool // no reply is sent
	seq    uint64
	rule   string // the rule that decided

	// The path that is opened before the answer is sent.
	open  []netip.Addr
	via   netpolicy.Mode
	life  time.Duration        // how long open is valid; 0: for the sandbox's life
	under netpolicy.Generation // the policy of the decision

	packet [maxQuery + 1]byte // one byte more, to detect packets that are too long
}

var pendings = sync.Pool{New: func() any { return new(pending) }}

func newPending() *pending { return pendings.Get().(*pending) }

// read parses the packet's first n bytes as the query.
func (p *pending) read(n int) { p.query = parse(p.packet[:n]) }

// proto returns the record's name for the transport of the query.
func (p *pending) proto() string {
	if p.conn != nil {
		return "tcp"
	}
	return "udp"
}

// free releases p after the query has ended, with or without an answer.
func (p *pending) free() {
	if p.conn != nil {
		p.conn.done()
	}
	p.query, p.reply, p.conn, p.open, p.rule = query{}, reply{}, nil, nil, ""
	pendings.Put(p)
}
