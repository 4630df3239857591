package channel

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// After the handshake both ends speak yamux. The host opens every stream, the
// guest none. The first frame on a stream is the host's hello, which describes what
// the stream is for; a frame is four bytes of big-endian length and that many
// bytes of JSON.
//
//	events    guest -> host   eventFrame, eventFrame, ...
//	identity  guest -> host   report
//	rehearse  like exec, before the identity
//	exec      host -> guest   control ...        guest -> host   proof, wiped ..., report
//	          followed by its data streams: stdin, stdout and, without a terminal, stderr
//	          with secrets, first: guest -> host   key;   host -> guest   four bytes of length, sealed bundle
//	          in a session, once the command executes: guest -> host   started
//	copy-in   followed by a data stream of tar from the host;  then guest -> host   report
//	copy-out  followed by a data stream of tar from the guest; then guest -> host   report ...
//	ping      guest -> host   report
//	drain     guest -> host   report
//	end       guest -> host   report; the session has ended
//	file      followed by a data stream of content from the host, or from the guest
//	          guest -> host   fileReport ...         host -> guest   fileControl, if the content is complete
//	ports     guest -> host   report
//	suspend   guest -> host   started: the commands are frozen and the host ends their input; then report, behind those of all commands
//	park      guest -> host   report, and when the guest has left yamux, a frame "go away"; the host may send another Wake then
//	attach    like exec, for a command of a suspended guest; the secrets replace those that it had
//	thaw      guest -> host   report
//	connect   followed by a data stream of the connection's bytes;  guest -> host   report that it is connected, report of its end
//
// Data streams carry bytes and no frames. yamux gives each stream a separate
// window (256 KiB), so a slow reader blocks only its own stream
// and, through it, the processes that write to it.

// Bounds of a frame's length. The host's frames are trusted, and large
// only because an argv can be; the guest's are not.
const (
	maxHello  = 8 << 20
	maxEvent  = 256 << 10
	maxReport = 64 << 10
	maxStep   = 256 // bytes of a step's name
)

// ErrHostile is wrapped by every error for a violation of the protocol by the guest.
// The connection is closed after it.
var ErrHostile = errors.New("guest broke the protocol")

func hostile(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrHostile, fmt.Errorf(format, args...))
}

type streamKind string

const (
	streamEvents   streamKind = "events"
	streamIdentity streamKind = "identity"
	streamRehearse streamKind = "rehearse"
	streamExec     streamKind = "exec"
	streamCopyIn   streamKind = "copy-in"
	streamCopyOut  streamKind = "copy-out"
	streamPing     streamKind = "ping"
	streamDrain    streamKind = "drain"
	streamEnd      streamKind = "end"
	streamFile     streamKind = "file"
	streamPorts    streamKind = "ports"
	streamConnect  streamKind = "connect"
	streamSuspend  streamKind = "suspend"
	streamPark     streamKind = "park"
	streamAttach   streamKind = "attach"
	streamThaw     streamKind = "thaw"
)

type hello struct {
	Kind     streamKind   `json:"kind"`
	Command  *wireCommand `json:"command,omitempty"`
	Identity *Identity    `json:"identity,omitempty"`
	File     *FileRequest `json:"file,omitempty"`
	Port     int          `json:"port,omitempty"` // connect
}

// wireCommand is a Command whose strings may hold any byte but NUL.
type wireCommand struct {
	Step string       `json:"step"`
	Argv []audit.Text `json:"argv"`
	Env  []audit.Text `json:"env"`
	Dir  audit.Text   `json:"dir"`
	TTY  *Winsize     `json:"tty,omitempty"`

	Session bool       `json:"session,omitempty"`
	User    audit.Text `json:"user,omitempty"`
	// Sealed: the command has secrets or is leased, so the guest sends a key before it starts it.
	Sealed bool `json:"sealed,omitempty"`
}

type control struct {
	Signal int      `json:"signal,omitempty"`
	Resize *Winsize `json:"resize,omitempty"`
	Prove  []byte   `json:"prove,omitempty"` // a challenge
	Wipe   bool     `json:"wipe,omitempty"`
}

// report is the guest's answer to a request of the host.
type report struct {
	Key     []byte       `json:"key,omitempty"`     // exec: what the secrets are to be sealed for
	Proof   *proof       `json:"proof,omitempty"`   // exec: answers control.Prove
	Wiped   *wiped       `json:"wiped,omitempty"`   // exec: answers control.Wipe
	Started bool         `json:"started,omitempty"` // exec in a session: the command executes; suspend: the commands are frozen
	Exit    *Exit        `json:"exit,omitempty"`    // exec
	Mark    uint64       `json:"mark,omitempty"`    // exec, end: every event before the exit stands before this mark
	Clock   *time.Time   `json:"clock,omitempty"`   // identity: the guest's clock after it was set
	Deleted []audit.Text `json:"deleted,omitempty"`

	Suspended bool `json:"suspended,omitempty"` // exec: the last report; the command is frozen

	CPU int64 `json:"cpu,omitempty"` // ping: microseconds of processor time of the cells; 0: not known

	Ports     []int `json:"ports,omitempty"`     // ports
	Connected bool  `json:"connected,omitempty"` // connect: bytes follow on the data stream
	Refused   bool  `json:"refused,omitempty"`   // connect, with Error: nothing listens

	Warnings []audit.Text `json:"warnings,omitempty"`
	Error    string       `json:"error,omitempty"`
	Done     bool         `json:"done,omitempty"` // the last report of this stream
}

// proof is made of the step's key, which came sealed: HMAC-SHA256(key, challenge || step).
type proof struct {
	Step string `json:"step"`
	MAC  []byte `json:"mac"`
}

type wiped struct {
	Error string `json:"error,omitempty"`
}

type eventFrame struct {
	Event *audit.Event `json:"event,omitempty"`
	Mark  uint64       `json:"mark,omitempty"`
}

func (c Command) encode() (*wireCommand, error) {
	w := &wireCommand{Step: c.Step, Argv: texts(c.Argv), Env: texts(c.Env), Dir: audit.Text(c.Dir), TTY: c.TTY, Session: c.Session, User: audit.Text(c.User), Sealed: c.Leased || len(c.Secrets) > 0}
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, errors.New("command is empty")
	}
	if len(c.Step) > maxStep {
		return nil, fmt.Errorf("step name has %d bytes, at most %d are allowed", len(c.Step), maxStep)
	}
	for _, list := range [][]string{c.Argv, c.Env, {c.Dir, c.User}} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return nil, fmt.Errorf("command holds a NUL byte in %.40q", s)
			}
		}
	}
	if w.Sealed && strings.IndexByte(c.Step, 0) >= 0 {
		return nil, fmt.Errorf("step name %q holds a NUL byte", c.Step)
	}
	return w, checkSecrets(c.Secrets)
}

func (w *wireCommand) decode() Command {
	return Command{Step: w.Step, Argv: plain(w.Argv), Env: plain(w.Env), Dir: string(w.Dir), TTY: w.TTY, Session: w.Session, User: string(w.User)}
}

func texts(in []string) []audit.Text {
	out := make([]audit.Text, len(in))
	for i, s := range in {
		out[i] = audit.Text(s)
	}
	return out
}

func plain(in []audit.Text) []string {
	out := make([]string, len(in))
	for i, t := range in {
		out[i] = string(t)
	}
	return out
}

// writeFrame writes one frame with a single Write.
func writeFrame(w io.Writer, v any, limit int) error {
	b, err := encodeFrame(v, limit)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func encodeFrame(v any, limit int) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	if len(body) > limit {
		return nil, fmt.Errorf("frame of %d bytes is over the limit of %d", len(body), limit)
	}
	b := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(b, uint32(len(body)))
	return append(b, body...), nil
}

// appendEvent appends the frame of an event; on an error b is as it was.
func appendEvent(b []byte, e *audit.Event) ([]byte, error) {
	begin := len(b)
	framed, err := e.AppendJSON(append(append(b, 0, 0, 0, 0), `{"event":`...))
	if err != nil {
		return b, fmt.Errorf("encode event: %w", err)
	}
	framed = append(framed, '}')
	size := len(framed) - begin - 4
	if size > maxEvent {
		return b, fmt.Errorf("event of %d bytes is over the limit of %d", size, maxEvent)
	}
	binary.BigEndian.PutUint32(framed[begin:], uint32(size))
	return framed, nil
}

// readFrame reads one frame of at most limit bytes into v. It returns io.EOF
// only at a frame's edge. Nothing is allocated for bytes that have not come.
func readFrame(r io.Reader, v any, limit int) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > uint32(limit) {
		return hostile("frame of %d bytes is over the limit of %d", n, limit)
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return err
	}
	if len(body) < int(n) {
		return io.ErrUnexpectedEOF
	}
	if err := json.Unmarshal(body, v); err != nil {
		return hostile("frame is not the JSON it should be: %w", err)
	}
	return nil
}
