package nats

import (
	"context"
	"errors"
	"net"
	"time"

	client "github.com/nats-io/nats.go"
)

// Cut ends the link without notifying anyone, as if the process had died.
func (l *Link) Cut() {
	l.nats.Close()
	l.Close()
}

// Token returns the token of l's address in subjects.
func (l *Link) Token() string { return token(l.own) }

// SubjectOf returns the subject of the frames for c.
func SubjectOf(c net.Conn) string { return c.(*Conn).subject() }

// Complain passes an asynchronous error to the link.
func (l *Link) Complain(err error) { l.asyncError(nil, nil, err) }

// AnswerProbe makes the link answer on a new subject. A server that receives the answer
// also knows all earlier subscriptions of the link.
func (l *Link) AnswerProbe() (subject string, err error) {
	subject = l.base + "probe." + token(l.own)
	_, err = l.nats.Subscribe(subject, func(m *client.Msg) { _ = m.Respond(nil) })
	return subject, errors.Join(err, l.nats.FlushTimeout(startTimeout))
}

// Probe waits until the subject is answered.
func (l *Link) Probe(ctx context.Context, subject string) error {
	for {
		within, cancel := context.WithTimeout(ctx, time.Second)
		_, err := l.nats.RequestWithContext(within, subject, nil)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// Forgotten waits until this link's NATS server no longer knows any subscriber of the subject.
func (l *Link) Forgotten(ctx context.Context, subject string) error {
	for {
		within, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		_, err := l.nats.RequestWithContext(within, subject, nil)
		cancel()
		if errors.Is(err, client.ErrNoResponders) || !l.nats.IsConnected() {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
	}
}

// Nothing returns one of the link's subjects to which no messages are sent.
func (l *Link) Nothing() string { return l.ownPrefix + "nothing" }
