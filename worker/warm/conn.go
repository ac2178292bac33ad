package warm

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/mux"
)

// Call contains a payload for a program, and the call's parameters.
type Call struct {
	Order    string    // order id, an ASCII word of at most 192 bytes; required
	Deadline time.Time // time when the worker cancels the call; required
	Type     string    // media type of the payload; optional
	Payload  []byte    // at most bourse.MaxPayload bytes
}

// Answer is a program's answer to a payload.
type Answer struct {
	Status int    // HTTP status, 200 to 599; 0 means 200; if it is not 2xx, the call failed and Body is the reason
	Type   string // media type of the body; optional
	Body   []byte // at most bourse.MaxAnswer bytes
}

// NotSent means that no part of a call was sent to the program.
type NotSent = mux.NotSent

// limits contains the limits of the protocol, which docs/tasks.md documents.
var limits = mux.Limits{Word: 192, Payload: bourse.MaxPayload, Answer: bourse.MaxAnswer}

// restTimeout limits the time between the first and last byte of an answer, because other answers on the connection
// have to wait for it.
const restTimeout = 10 * time.Second

// Conn is a worker's end of a connection to a program. It is safe for concurrent use.
type Conn struct{ *mux.Conn }

// NewConn returns a Conn that takes ownership of conn. It closes the connection after it has been idle for the duration
// idle. If idle is 0, it never closes an idle connection.
func NewConn(conn net.Conn, idle time.Duration) *Conn {
	p := mux.NewPipe(conn)
	c := &Conn{mux.NewConn(p, p, mux.Config{Limits: limits, Idle: idle, Rest: restTimeout})}
	go c.Run()
	return c
}

var errNoDeadline = errors.New("the call has no deadline")

// Call sends a payload and waits for its answer until the deadline, or until ctx is done. If the deadline passes, the
// error is context.DeadlineExceeded; if ctx is done, it is ctx's cause. In both cases, the program is notified. The
// error is [NotSent] if nothing was sent, for example because the call exceeds the limits. Any other error means that
// the connection broke.
func (c *Conn) Call(ctx context.Context, q *Call) (Answer, error) {
	if q.Deadline.IsZero() {
		return Answer{}, NotSent{Err: errNoDeadline}
	}
	a, err := c.Conn.Call(ctx, &mux.Call{Subject: q.Order, Deadline: q.Deadline, Type: q.Type, Payload: q.Payload})
	return Answer{Status: a.Status, Type: bourse.MediaType(a.Type), Body: a.Body}, err
}
