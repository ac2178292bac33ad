package wire

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Keys is how sites prove who wrote what. A site's birth, which the first
// transaction of each of its epochs carries, is what the others know it by: a
// certificate of the cluster, or where there are none a public key.
type Keys interface {
	// Own returns our birth and the key that belongs to it. Another birth than
	// before begins a new epoch.
	Own() (birth []byte, key crypto.Signer)
	// Author reads the birth of an epoch that began at a time: which site it
	// names ("": it leaves that to the stream), in which role, and the key that
	// checks its signatures. It depends on nothing else, so that all members
	// agree. CodeForbidden: it proves nothing.
	Author(birth []byte, at time.Time) (site bourse.WorkerID, role bourse.Role, key crypto.PublicKey, err error)
}

// maxBirth bounds a birth: a certificate and a few intermediate ones.
const maxBirth = 16 << 10

// Author is who writes a stream.
type Author struct {
	Stream Stream
	Birth  []byte

	once sync.Once // read at the first need: opening a view of many streams does not wait for it
	role bourse.Role
	key  crypto.PublicKey
	Err  error
}

// Read reports CodeForbidden when the birth does not speak for the stream.
func (a *Author) Read(k Keys) error {
	a.once.Do(func() {
		if len(a.Birth) == 0 || len(a.Birth) > maxBirth {
			a.Err = bourse.Errorf(bourse.CodeForbidden, "a birth of %d bytes", len(a.Birth))
			return
		}
		var site bourse.WorkerID
		site, a.role, a.key, a.Err = k.Author(a.Birth, time.UnixMilli(int64(a.Stream.Epoch)))
		if a.Err == nil && site != "" && site != a.Stream.Site {
			a.Err = bourse.Errorf(bourse.CodeForbidden, "%s %s writes as %s", a.role, site, bourse.Quoted(string(a.Stream.Site)))
		}
	})
	return a.Err
}

// Same reports whether two authors are one.
func (a *Author) Same(b *Author) bool { return a == b || bytes.Equal(a.Birth, b.Birth) }

// MayShare reports whether the author may write rows that belong to no site.
func (a *Author) MayShare() bool { return a.role == bourse.RoleBroker }

// MayOwn reports whether the author may write rows of its own. A proxy has
// nothing to say of itself: it reads the view.
func (a *Author) MayOwn() bool { return a.role != bourse.RoleProxy }

// CheckMay reports CodeForbidden unless the author may write rows of a kind.
func (a *Author) CheckMay(shared bool) error {
	switch {
	case shared && !a.MayShare():
		return ErrMayNotShare
	case !shared && !a.MayOwn():
		return ErrMayNotOwn
	}
	return nil
}

// What is signed begins with one of these and the cluster's id, so that nothing
// signed for one purpose or cluster serves another.
const (
	signedTransaction = "bourse view transaction"
	SignedRow         = "bourse view row"
)

// Message returns what is signed for a purpose.
func Message(purpose, cluster string, body []byte) []byte {
	m := make([]byte, 0, len(purpose)+len(cluster)+len(body)+2)
	m = append(append(m, purpose...), 0)
	m = append(append(m, cluster...), 0)
	return append(m, body...)
}

// Sign signs a message with any kind of key that certificates are made for.
func Sign(key crypto.Signer, m []byte) ([]byte, error) {
	if key, ok := key.(ed25519.PrivateKey); ok {
		return ed25519.Sign(key, m), nil
	}
	sum := sha256.Sum256(m)
	var opts crypto.SignerOpts = crypto.SHA256
	if _, ok := key.Public().(*rsa.PublicKey); ok {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
	}
	sig, err := key.Sign(rand.Reader, sum[:], opts)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "sign for the view: %w", err)
	}
	return sig, nil
}

// Verify reports whether a signature is that of a key.
func Verify(key crypto.PublicKey, m, sig []byte) bool {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, m, sig)
	case *ecdsa.PublicKey:
		sum := sha256.Sum256(m)
		return ecdsa.VerifyASN1(key, sum[:], sig)
	case *rsa.PublicKey:
		sum := sha256.Sum256(m)
		return rsa.VerifyPSS(key, crypto.SHA256, sum[:], sig, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}) == nil
	}
	return false
}

// Seal is what a site signs its transactions with.
type Seal struct {
	Cluster string
	Birth   []byte // goes with the transaction; needed in the first of an epoch
	Key     crypto.Signer
	Prev    []byte // Link of the transaction before, where it is at hand: the signature proves that one too
}

// linkSize is how many bytes of a SHA-256 link a transaction to the one before.
// Only a second preimage would be of use to others, and who wrote both has no
// need of one.
const linkSize = 16

// Link returns the part of an encoded transaction's hash that the one after it carries.
func Link(encoded []byte) []byte {
	sum := sha256.Sum256(encoded)
	return sum[:linkSize]
}
