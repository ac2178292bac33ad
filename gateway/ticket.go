package gateway

import (
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/pull"
)

// ticketHeader contains the caller's ticket; see [pull.Ticket]. It is a header because URLs
// are logged.
const ticketHeader = "Bourse-Ticket"

// The length of a ticket that the caller has chosen: at least that of 128 random bits in
// base64.
const (
	minTicket = 22
	maxTicket = 128
)

// shown returns the ticket in a request, or "".
func shown(r *http.Request) pull.Ticket { return pull.Ticket(r.Header.Get(ticketHeader)) }

// ticketOf returns the ticket for a new job or host: the caller's own, or a new one, which
// the reply then contains.
func ticketOf(r *http.Request) (t, made pull.Ticket, err error) {
	switch t = shown(r); {
	case t == "":
		t = pull.Ticket(strings.ToLower(rand.Text())) // at least 128 bits
		return t, t, nil
	case len(t) < minTicket || len(t) > maxTicket:
		return "", "", bourse.Errorf(bourse.CodeInvalid, "invalid %s of %d bytes: use %d to %d random characters, or omit it", ticketHeader, len(t), minTicket, maxTicket)
	}
	return t, "", nil
}
