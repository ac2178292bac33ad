package pull

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"

	"github.com/bourse-dev/bourse"
)

// Ticket is the secret that a poller or host uses to claim jobs. Only the ticket's holder can keep
// these jobs alive or end them. All pollers use the same gateway token, but each has its own secret
// ticket.
type Ticket string

// hash returns the hash that is stored instead of the ticket. It does not need a salt, because
// tickets are random.
func (t Ticket) hash() []byte {
	sum := sha256.Sum256([]byte(t))
	return sum[:]
}

// String returns the ticket's hash in hexadecimal. A ticket that is logged or formatted is
// therefore not revealed.
func (t Ticket) String() string { return hex.EncodeToString(t.hash()) }

// Named reports whether s is the result of this ticket's String method.
func (t Ticket) Named(s string) bool {
	return subtle.ConstantTimeCompare([]byte(t.String()), []byte(s)) == 1
}

// matches reports whether stored is the hash of this ticket.
func (t Ticket) matches(stored []byte) bool { return subtle.ConstantTimeCompare(t.hash(), stored) == 1 }

func errOtherTicket(name string) error {
	return bourse.Errorf(bourse.CodeForbidden, "job %s was claimed with another ticket", bourse.Quoted(name))
}
