package gateway

import (
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/pull"
)

// ticketHeader is where a caller shows its ticket: see pull.Ticket. It is in no
// URL, which is logged.
const ticketHeader = "Bourse-Ticket"

// How long a ticket is that a caller has chosen itself: no shorter than 128
// random bits in hexadecimal or base64.
const (
	minTicket = 22
	maxTicket = 128
)

// shown is the ticket that a call shows; "" is no caller's.
func shown(r *http.Request) pull.Ticket { return pull.Ticket(r.Header.Get(ticketHeader)) }

// ticketOf is the ticket of a call that begins something: its caller's own, or
// one that is made for it, which the answer then contains.
func ticketOf(r *http.Request) (t, made pull.Ticket, err error) {
	switch t = shown(r); {
	case t == "":
		t = pull.Ticket(strings.ToLower(rand.Text())) // 128 bits at least
		return t, t, nil
	case len(t) < minTicket || len(t) > maxTicket:
		return "", "", bourse.Errorf(bourse.CodeInvalid, "a %s of %d bytes: use %d to %d that cannot be guessed, or none", ticketHeader, len(t), minTicket, maxTicket)
	}
	return t, "", nil
}
