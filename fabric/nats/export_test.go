package nats

import "net"

// Cut ends the link as the death of its process would: nobody is told.
func (l *Link) Cut() {
	l.nats.Close()
	l.Close()
}

// Token is the token of l's address in subjects.
func (l *Link) Token() string { return token(l.own) }

// SubjectOf is where frames for c are sent.
func SubjectOf(c net.Conn) string { return c.(*Conn).subject() }

// Complain has the link told of an error in the background.
func (l *Link) Complain(err error) { l.complained(nil, nil, err) }
