package warm

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/mux"
)

// Call is one payload for a program.
type Call struct {
	Order    string    // id of the order: a word of ASCII, of at most 192 bytes; required
	Deadline time.Time // when the worker abandons the call; required
	Type     string    // media type of the payload; optional
	Payload  []byte    // at most bourse.MaxPayload
}

// Answer is a program's answer to a payload.
type Answer struct {
	Status int    // as HTTP's, 200 to 599: 2xx is an answer, anything else a failure, whose body says why; 0 is 200
	Type   string // media type of the body; optional
	Body   []byte // at most bourse.MaxAnswer
}

// NotSent is the error of a call of which nothing has left.
type NotSent = mux.NotSent

// limits are those of docs/tasks.md.
var limits = mux.Limits{Word: 192, Payload: bourse.MaxPayload, Answer: bourse.MaxAnswer}

// restPatience is how long the rest of an answer may take to arrive once it has
// begun: no other call is answered in the meantime.
const restPatience = 10 * time.Second

// Conn is a worker's end of a connection to a program. It may be used by many
// at once.
type Conn struct{ *mux.Conn }

// NewConn makes calls over conn, which is its own from then on. Unused for idle
// it is closed; 0: never.
func NewConn(conn net.Conn, idle time.Duration) *Conn {
	p := mux.NewPipe(conn)
	c := &Conn{mux.NewConn(p, p, mux.Config{Limits: limits, Idle: idle, Rest: restPatience})}
	go c.Run()
	return c
}

var errNoDeadline = errors.New("the call has no deadline")

// Call sends a payload and waits for its answer, at most until its deadline or
// the end of ctx. The error is then context.DeadlineExceeded or the cause of
// ctx's end, and the program is notified; NotSent when nothing has left, or the
// call exceeds its limits; anything else when the connection broke.
func (c *Conn) Call(ctx context.Context, q *Call) (Answer, error) {
	if q.Deadline.IsZero() {
		return Answer{}, NotSent{Err: errNoDeadline}
	}
	a, err := c.Conn.Call(ctx, &mux.Call{Subject: q.Order, Deadline: q.Deadline, Type: q.Type, Payload: q.Payload})
	return Answer{Status: a.Status, Type: bourse.MediaType(a.Type), Body: a.Body}, err
}
