package pull

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"

	"github.com/bourse-dev/bourse"
)

// Ticket is the secret with which a poller or host claims a job. Only the ticket's holder can keep
// the job alive or end it. All pollers share the gateway's token, but nobody else knows the
// ticket.
type Ticket string

// hash returns the hash under which the ticket is stored. It needs no salt, because tickets are
// random.
func (t Ticket) hash() []byte {
	sum := sha256.Sum256([]byte(t))
	return sum[:]
}

// String returns the hash in hexadecimal, so that logs and records do not contain the ticket.
func (t Ticket) String() string { return hex.EncodeToString(t.hash()) }

// Named reports whether s is the String of this ticket.
func (t Ticket) Named(s string) bool {
	return subtle.ConstantTimeCompare([]byte(t.String()), []byte(s)) == 1
}

// matches reports whether kept is the hash of this ticket.
func (t Ticket) matches(kept []byte) bool { return subtle.ConstantTimeCompare(t.hash(), kept) == 1 }

func errOtherTicket(name string) error {
	return bourse.Errorf(bourse.CodeForbidden, "job %s was claimed with another ticket", bourse.Quoted(name))
}
