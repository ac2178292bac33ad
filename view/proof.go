package view

import (
	"crypto"
	"crypto/sha256"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// A shared row belongs to no site, and whoever has it passes it on: in
// snapshots, in comparisons, out of a worker's own store. So each carries the
// signature of the site that wrote it, over what hasher.encode makes of it.

// proof is who wrote a version of a shared row.
type proof struct {
	by      *author
	sig     []byte
	checked bool
}

// notary checks what others have signed.
type notary struct {
	keys    Keys
	cluster string
}

// errForged is what is not of the site that it claims to be of. It says more
// about who passed it on.
var errForged = bourse.Errorf(bourse.CodeForbidden, "it is not signed by its site")

// attest reports CodeForbidden unless a version of a shared row is that of a
// site that may write it.
func (n *notary) attest(r *record) error {
	if r.proof.checked {
		return nil
	}
	if err := r.proof.by.read(n.keys); err != nil {
		return err
	}
	if !r.proof.by.mayShare() {
		return errMayNotShare
	}
	if !signed(r.proof.by.key, message(signedRow, n.cluster, new(hasher).encode(*r)), r.proof.sig) {
		return errForged
	}
	r.proof.checked = true
	return nil
}

// vouches reports whether attest finds nothing wrong.
func (n *notary) vouches(r *record) bool { return n.attest(r) == nil }

var errMayNotShare = bourse.Errorf(bourse.CodeForbidden, "only brokers write rows that belong to no site")

// pen is what our own transactions are signed with.
type pen struct {
	birth []byte
	key   crypto.Signer
	prev  string // Link of our last transaction, as far as this process knows it
}

func (n *notary) newPen() pen {
	birth, key := n.keys.Own()
	return pen{birth: birth, key: key}
}

// prove signs a version of a shared row of ours.
func (b *batch) prove(r *record) error {
	sig, err := sign(b.pen.key, message(signedRow, b.notary.cluster, b.hasher.encode(*r)))
	r.proof = proof{by: &author{stream: b.self, birth: b.pen.birth}, sig: sig, checked: true}
	return err
}

// birthID names a birth.
func birthID(birth []byte) []byte {
	sum := sha256.Sum256(birth)
	return sum[:linkSize]
}

func putProof(c *sqlite.Conn, r record) error {
	id := birthID(r.proof.by.birth)
	if err := run(c, "INSERT OR IGNORE INTO births (id, birth) VALUES (?, ?)", id, r.proof.by.birth); err != nil {
		return err
	}
	return run(c, "INSERT OR REPLACE INTO proofs (tbl, key, birth, sig) VALUES (?, ?, ?, ?)", r.table, r.key, id, r.proof.sig)
}

func deleteProof(c *sqlite.Conn, r record) error {
	return run(c, "DELETE FROM proofs WHERE tbl = ? AND key = ?", r.table, r.key)
}

// proofOf reads who signed the version of a shared row that stands; ok is false
// for one of before there were signatures.
func proofOf(c *sqlite.Conn, table, key string) (birth, sig []byte, ok bool, err error) {
	err = query(c, "SELECT birth, sig FROM proofs WHERE tbl = ? AND key = ?", func(s *sqlite.Stmt) error {
		birth, _ = valueAt(s, 0).([]byte)
		sig, _ = valueAt(s, 1).([]byte)
		ok = true
		return nil
	}, table, key)
	return birth, sig, ok, err
}

// tidyBirths drops the births that no proof names any more.
func tidyBirths(c *sqlite.Conn) error {
	return run(c, "DELETE FROM births WHERE id NOT IN (SELECT birth FROM proofs)")
}
