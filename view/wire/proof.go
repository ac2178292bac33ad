package wire

import (
	"crypto"
	"crypto/sha256"

	"github.com/bourse-dev/bourse"
)

// Shared rows do not belong to a site. Any member that has a shared row may forward it, for example
// in a snapshot or from a worker's store. Therefore, the site that writes a shared row signs it.
// The signature covers the output of Hasher.Encode.

// Proof proves who wrote a version of a shared row.
type Proof struct {
	By      *Author
	Sig     []byte
	Checked bool
}

// Verifier checks other sites' signatures.
type Verifier struct {
	Keys       Keys
	Cluster    string
	Placements *Placements // nil in a cluster without certificates, where every placement is accepted
}

// ErrForged means that data was not signed by the site that it names. The data may have been forged
// by the member that forwarded it.
var ErrForged = bourse.Errorf(bourse.CodeForbidden, "it is not signed by the site that it names")

// CheckRow returns CodeForbidden unless a version of a shared row was signed by a site that may
// write the row.
func (n *Verifier) CheckRow(r *Version) error {
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

// Valid reports whether CheckRow succeeds.
func (n *Verifier) Valid(r *Version) bool { return n.CheckRow(r) == nil }

// SignedBy reports whether the author has signed the transaction.
func (n *Verifier) SignedBy(tx *SignedTx, by *Author) bool {
	return Verify(by.key, Message(signedTransaction, n.Cluster, tx.body), tx.sig)
}

// ErrMayNotShare is returned for a shared row from a site that is not a broker.
var ErrMayNotShare = bourse.Errorf(bourse.CodeForbidden, "only brokers may write shared rows")

// ErrMayNotOwn is returned for an owned row from a proxy.
var ErrMayNotOwn = bourse.Errorf(bourse.CodeForbidden, "proxies may not write rows")

// Signer contains the data that this server needs to sign its transactions.
type Signer struct {
	Birth []byte
	Key   crypto.Signer
	Prev  string // Link of this server's previous transaction; empty if this process has not written one
}

// NewSigner returns this server's Signer for a new epoch.
func (n *Verifier) NewSigner() Signer {
	birth, key := n.Keys.Own()
	return Signer{Birth: birth, Key: key}
}

// BirthID returns the ID of a birth certificate, which is a truncated hash.
func BirthID(birth []byte) []byte {
	sum := sha256.Sum256(birth)
	return sum[:linkSize]
}
