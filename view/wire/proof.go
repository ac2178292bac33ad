package wire

import (
	"crypto"
	"crypto/sha256"

	"github.com/bourse-dev/bourse"
)

// A shared row belongs to no site, and any member that has it passes it on: in
// snapshots, in comparisons, out of a worker's own store. So each carries the
// signature of the site that wrote it, over what hasher.encode makes of it.

// Proof is who wrote a version of a shared row.
type Proof struct {
	By      *Author
	Sig     []byte
	Checked bool
}

// Verifier checks what others have signed.
type Verifier struct {
	Keys       Keys
	Cluster    string
	Placements *Placements // nil in a cluster without certificates, where every row is believed
}

// ErrForged is what is not of the site that it claims to be of. It may say more
// about the member that passed it on.
var ErrForged = bourse.Errorf(bourse.CodeForbidden, "it is not signed by its site")

// Attest reports CodeForbidden unless a version of a shared row is that of a
// site that may write it.
func (n *Verifier) Attest(r *Version) error {
	if r.Proof.Checked {
		return nil
	}
	if err := r.Proof.By.Read(n.Keys); err != nil {
		return err
	}
	if !r.Proof.By.MayShare() {
		return ErrMayNotShare
	}
	if !Verify(r.Proof.By.key, Message(SignedRow, n.Cluster, new(Hasher).Encode(*r)), r.Proof.Sig) {
		return ErrForged
	}
	r.Proof.Checked = true
	return nil
}

// Valid reports whether attest finds nothing wrong.
func (n *Verifier) Valid(r *Version) bool { return n.Attest(r) == nil }

// SealedBy reports whether an author has signed a transaction.
func (n *Verifier) SealedBy(tx *Sealed, by *Author) bool {
	return Verify(by.key, Message(signedTransaction, n.Cluster, tx.body), tx.sig)
}

// ErrMayNotShare is a shared row of a site that is no broker.
var ErrMayNotShare = bourse.Errorf(bourse.CodeForbidden, "only brokers write rows that belong to no site")

// ErrMayNotOwn is a row that a proxy says of itself.
var ErrMayNotOwn = bourse.Errorf(bourse.CodeForbidden, "proxies write nothing")

// Signer is what our own transactions are signed with.
type Signer struct {
	Birth []byte
	Key   crypto.Signer
	Prev  string // Link of our last transaction, as far as this process knows it
}

// NewSigner returns what an epoch that begins now is signed with.
func (n *Verifier) NewSigner() Signer {
	birth, key := n.Keys.Own()
	return Signer{Birth: birth, Key: key}
}

// BirthID names a birth.
func BirthID(birth []byte) []byte {
	sum := sha256.Sum256(birth)
	return sum[:linkSize]
}
