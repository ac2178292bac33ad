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

// Keys provides this site's signing key and verifies other sites' keys. The first transaction of each epoch contains
// the site's birth certificate, which tells the other sites who writes the epoch. The birth certificate is a cluster
// certificate or, in a cluster without certificates, a public key.
type Keys interface {
	// Own returns this site's current birth certificate and private key. If the birth certificate
	// has changed, the site begins a new epoch.
	Own() (birth []byte, key crypto.Signer)
	// Author verifies the birth certificate of an epoch that began at the given time. It returns
	// the site that the certificate names, the site's role, and the public key for verifying the
	// site's signatures. If the certificate does not name a site, the site is "", and the stream
	// determines the site. The result depends only on the arguments and the cluster's CAs, so that
	// all members agree. It returns CodeForbidden if the certificate is not valid in this cluster.
	Author(birth []byte, at time.Time) (site bourse.WorkerID, role bourse.Role, key crypto.PublicKey, err error)
}

// maxBirth is the maximum size of a birth certificate in bytes. It is enough for a certificate and
// a few intermediate ones.
const maxBirth = 16 << 10

// Author describes the site that writes a stream.
type Author struct {
	Stream Stream
	Birth  []byte

	once sync.Once // makes Read parse Birth only once, and only when it is needed, so that a view with many streams opens quickly
	role bourse.Role
	key  crypto.PublicKey
	Err  error
}

// Read verifies the birth certificate and reads the author's role and public key from it. It returns CodeForbidden if
// the certificate is not valid for the stream's site.
func (a *Author) Read(k Keys) error {
	a.once.Do(func() {
		if len(a.Birth) == 0 || len(a.Birth) > maxBirth {
			a.Err = bourse.Errorf(bourse.CodeForbidden, "invalid birth certificate of %d bytes", len(a.Birth))
			return
		}
		var site bourse.WorkerID
		site, a.role, a.key, a.Err = k.Author(a.Birth, time.UnixMilli(int64(a.Stream.Epoch)))
		if a.Err == nil && site != "" && site != a.Stream.Site {
			a.Err = bourse.Errorf(bourse.CodeForbidden, "the birth certificate belongs to %s %s, not to %s", a.role, site, bourse.Quoted(string(a.Stream.Site)))
		}
	})
	return a.Err
}

// Same reports whether two authors have the same birth certificate.
func (a *Author) Same(b *Author) bool { return a == b || bytes.Equal(a.Birth, b.Birth) }

// MayShare reports whether the author may write shared rows.
func (a *Author) MayShare() bool { return a.role == bourse.RoleBroker }

// MayOwn reports whether the author may write owned rows. Only proxies may not, because they only
// read the view.
func (a *Author) MayOwn() bool { return a.role != bourse.RoleProxy }

// CheckMay returns CodeForbidden unless the author may write shared rows or, if shared is false, owned rows.
func (a *Author) CheckMay(shared bool) error {
	switch {
	case shared && !a.MayShare():
		return ErrMayNotShare
	case !shared && !a.MayOwn():
		return ErrMayNotOwn
	}
	return nil
}

// Purposes of signatures. Each signed message begins with its purpose and the cluster's ID, so that
// its signature is not valid for any other purpose or cluster.
const (
	signedTransaction = "bourse view transaction"
	SignedRow         = "bourse view row"
)

// Message returns the message that is signed for the given purpose, cluster and body.
func Message(purpose, cluster string, body []byte) []byte {
	m := make([]byte, 0, len(purpose)+len(cluster)+len(body)+2)
	m = append(append(m, purpose...), 0)
	m = append(append(m, cluster...), 0)
	return append(m, body...)
}

// Sign signs a message. It supports Ed25519, ECDSA and RSA keys.
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

// Verify reports whether sig is a valid signature of a message.
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

// SigningKey contains the data required to sign a transaction.
type SigningKey struct {
	Cluster string
	Birth   []byte // included in the transaction; required in the first one of an epoch
	Key     crypto.Signer
	Prev    []byte // Link of the previous transaction; if it is set, the signature also covers it
}

// linkSize is the length, in bytes, of a Link: a truncated SHA-256 hash that links a transaction to
// the previous one. A truncated hash is sufficient, because an attacker would need a second
// preimage. A collision would be useful only to the author of both transactions.
const linkSize = 16

// Link returns the truncated hash of an encoded transaction. The next transaction of the stream
// contains it.
func Link(encoded []byte) []byte {
	sum := sha256.Sum256(encoded)
	return sum[:linkSize]
}
