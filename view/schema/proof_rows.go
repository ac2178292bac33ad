package schema

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/view/wire"
)

func putProof(c *sqlite.Conn, r wire.Version) error {
	id := wire.BirthID(r.Proof.By.Birth)
	if err := Run(c, "INSERT OR IGNORE INTO births (id, birth) VALUES (?, ?)", id, r.Proof.By.Birth); err != nil {
		return err
	}
	return Run(c, "INSERT OR REPLACE INTO proofs (tbl, key, birth, sig) VALUES (?, ?, ?, ?)", r.Table, r.Key, id, r.Proof.Sig)
}

func deleteProof(c *sqlite.Conn, r wire.Version) error {
	return Run(c, "DELETE FROM proofs WHERE tbl = ? AND key = ?", r.Table, r.Key)
}

// ProofOf returns the proof of a shared row's current version: the ID of the signer's birth
// certificate, and the signature. It returns false if there is no proof.
func ProofOf(c *sqlite.Conn, table, key string) (birth, sig []byte, ok bool, err error) {
	err = Query(c, "SELECT birth, sig FROM proofs WHERE tbl = ? AND key = ?", func(s *sqlite.Stmt) error {
		birth, _ = ValueAt(s, 0).([]byte)
		sig, _ = ValueAt(s, 1).([]byte)
		ok = true
		return nil
	}, table, key)
	return birth, sig, ok, err
}

// BirthOf returns the birth certificate with the given ID, or nil if there is none.
func BirthOf(c *sqlite.Conn, id []byte) (birth []byte, err error) {
	err = Query(c, "SELECT birth FROM births WHERE id = ?", func(s *sqlite.Stmt) error {
		birth, _ = ValueAt(s, 0).([]byte)
		return nil
	}, id)
	return birth, err
}

// DropBirths deletes the birth certificates that are no longer referenced by any proof.
func DropBirths(c *sqlite.Conn) error {
	return Run(c, "DELETE FROM births WHERE id NOT IN (SELECT birth FROM proofs)")
}
