package gateway

import (
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/pull"
)

// ticketHeader is the header that contains the caller's ticket (see [pull.Ticket]). The ticket is not part of the
// URL, because URLs are logged.
const ticketHeader = "Bourse-Ticket"

// Limits on the length of a ticket. The minimum is the length of 128 random bits in base64.
const (
	minTicket = 22
	maxTicket = 128
)

// ticketIn returns the ticket in a request, or "" if the request contains none.
func ticketIn(r *http.Request) pull.Ticket { return pull.Ticket(r.Header.Get(ticketHeader)) }

// ticketOf returns the ticket for a new job or host: either the one that the caller sent, or a new one. If the ticket
// is new, ticketOf also returns it as made, and the reply must contain it. Otherwise, made is "".
func ticketOf(r *http.Request) (t, made pull.Ticket, err error) {
	switch t = ticketIn(r); {
	case t == "":
		t = pull.Ticket(strings.ToLower(rand.Text())) // has at least 128 random bits
		return t, t, nil
	case len(t) < minTicket || len(t) > maxTicket:
		return "", "", bourse.Errorf(bourse.CodeInvalid, "invalid %s of %d bytes: use %d to %d random characters, or omit the header", ticketHeader, len(t), minTicket, maxTicket)
	}
	return t, "", nil
}
