package pull

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"

	"github.com/bourse-dev/bourse"
)

// A Ticket is the secret of a poller or host by which it is known again: who
// has claimed a job with one ends it, and is asked to end it, with the same one.
// All that may poll share the gateway's token; no one else has the ticket.
type Ticket string

// hash is what is kept of a ticket. It needs no salt: tickets are random.
func (t Ticket) hash() []byte {
	sum := sha256.Sum256([]byte(t))
	return sum[:]
}

// String returns the hash, so that no log and no record has the ticket.
func (t Ticket) String() string { return hex.EncodeToString(t.hash()) }

// Named reports whether a String is of this ticket.
func (t Ticket) Named(s string) bool {
	return subtle.ConstantTimeCompare([]byte(t.String()), []byte(s)) == 1
}

// isOf reports whether a hash that was kept is of this ticket. Jobs of the
// release before this field have none: no ticket is theirs.
func (t Ticket) isOf(kept []byte) bool { return subtle.ConstantTimeCompare(t.hash(), kept) == 1 }

func errAnothers(name string) error {
	return bourse.Errorf(bourse.CodeForbidden, "job %s was claimed with another ticket", bourse.Quoted(name))
}
