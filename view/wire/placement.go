package wire

import (
	"crypto"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// signedPlacement is the purpose for which placements are signed; see [Message].
const signedPlacement = "bourse placement"

// maxPlacement is the maximum size of an encoded placement, in bytes.
const maxPlacement = maxBirth + 4<<10

// placementBody is the stored and transmitted form of a placement. The broker that signed the
// placement may no longer exist when the placement is verified. Therefore, placementBody contains
// everything that a verifier needs, except the cluster's CA.
type placementBody struct {
	Placement []byte `cbor:"1,keyasint"` // the encoded bourse.Placement
	Site      string `cbor:"2,keyasint"` // the broker's ID
	Signed    int64  `cbor:"3,keyasint"` // time when the broker began to use Birth, in milliseconds since 1970
	Birth     []byte `cbor:"4,keyasint"` // the broker's certificate
	Sig       []byte `cbor:"5,keyasint"` // signature of Placement
}

// Placements signs and verifies placements. It is safe for concurrent use.
type Placements struct {
	verifier Verifier
	site     bourse.WorkerID
	now      func() time.Time

	mu       sync.Mutex
	own      Author                                 // this server as the author of placements
	key      crypto.Signer                          // private key of own
	authors  map[authorKey]*Author                  // authors whose certificates have been verified
	verified map[[sha256.Size]byte]bourse.Placement // valid placements, by the hash of the placement's signed form
}

type authorKey struct {
	site   string
	signed int64
	birth  [linkSize]byte
}

// Maximum numbers of entries in the caches. A full cache is cleared completely, which does little
// harm, because verifying a placement again takes only a tenth of a millisecond. Failures are not
// cached, because a verification may succeed once a CA has been added.
const (
	maxAuthors  = 1 << 10
	maxVerified = 1 << 16
)

// NewPlacements returns a Placements that signs on behalf of site, with the key and certificate from keys.
func NewPlacements(cluster string, site bourse.WorkerID, keys Keys, now func() time.Time) *Placements {
	return &Placements{
		verifier: Verifier{Keys: keys, Cluster: cluster}, site: site, now: now,
		authors: map[authorKey]*Author{}, verified: map[[sha256.Size]byte]bourse.Placement{},
	}
}

// Sign signs a placement and returns its encoded form, which Verify accepts.
func (p *Placements) Sign(placement bourse.Placement) ([]byte, error) {
	statement, err := EncodeBody(placement)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "encode a placement: %w", err)
	}
	by, key := p.signer()
	sig, err := Sign(key, Message(signedPlacement, p.verifier.Cluster, statement))
	if err != nil {
		return nil, err
	}
	return EncodeBody(placementBody{
		Placement: statement, Site: string(p.site), Signed: int64(by.Stream.Epoch), Birth: by.Birth, Sig: sig,
	})
}

// signer returns an Author that describes this server, for signing placements, and the server's
// private key. The author's epoch is the time when the server began to use its current certificate.
// It changes only with the certificate, so that other servers need to verify each certificate only
// once.
func (p *Placements) signer() (*Author, crypto.Signer) {
	birth, key := p.verifier.Keys.Own()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.key == nil || !p.own.Same(&Author{Birth: birth}) {
		p.own, p.key = Author{Stream: Stream{Site: p.site, Epoch: uint64(p.now().UnixMilli())}, Birth: birth}, key
	}
	return &Author{Stream: p.own.Stream, Birth: p.own.Birth}, p.key
}

// Verify decodes and verifies a placement in the form returned by Sign. Errors: forbidden if the placement is not
// signed by one of the cluster's brokers, invalid if it cannot be decoded.
func (p *Placements) Verify(signed []byte) (bourse.Placement, error) {
	switch {
	case len(signed) == 0:
		return bourse.Placement{}, bourse.Errorf(bourse.CodeForbidden, "the placement is missing")
	case len(signed) > maxPlacement:
		return bourse.Placement{}, bourse.Errorf(bourse.CodeInvalid, "the placement has %d bytes, but at most %d are allowed", len(signed), maxPlacement)
	}
	sum := sha256.Sum256(signed)
	p.mu.Lock()
	placement, ok := p.verified[sum]
	p.mu.Unlock()
	if ok {
		return placement, nil
	}
	placement, err := p.verify(signed)
	if err != nil {
		return bourse.Placement{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.verified) >= maxVerified {
		clear(p.verified)
	}
	p.verified[sum] = placement
	return placement, nil
}

func (p *Placements) verify(signed []byte) (placement bourse.Placement, err error) {
	var b placementBody
	if err := ReadBody(signed, &b); err != nil {
		return placement, bourse.Errorf(bourse.CodeInvalid, "malformed placement: %w", err)
	}
	if err := bourse.WorkerID(b.Site).Validate(); err != nil || b.Signed <= 0 {
		return placement, bourse.Errorf(bourse.CodeInvalid, "malformed placement: it names site %s and time %d", bourse.Quoted(b.Site), b.Signed)
	}
	by, err := p.author(&b)
	if err != nil {
		return placement, err
	}
	if !by.MayShare() {
		return placement, bourse.Errorf(bourse.CodeForbidden, "the placement was signed by %s, which is not a broker", by.Stream.Site)
	}
	if !Verify(by.key, Message(signedPlacement, p.verifier.Cluster, b.Placement), b.Sig) {
		return placement, ErrForged
	}
	if err := ReadBody(b.Placement, &placement); err != nil {
		return placement, bourse.Errorf(bourse.CodeInvalid, "malformed placement: %w", err)
	}
	return placement, nil
}

// PlacementCertificate returns the certificate in a signed placement. It verifies neither the
// certificate nor the placement. Errors: invalid.
func PlacementCertificate(signed []byte) ([]byte, error) {
	var b placementBody
	if err := ReadBody(signed, &b); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "malformed placement: %w", err)
	}
	return b.Birth, nil
}

// author returns the author of a placement after verifying the author's certificate. Errors:
// forbidden.
func (p *Placements) author(b *placementBody) (*Author, error) {
	k := authorKey{site: b.Site, signed: b.Signed}
	copy(k.birth[:], BirthID(b.Birth))
	p.mu.Lock()
	by := p.authors[k]
	p.mu.Unlock()
	if by != nil {
		return by, nil
	}
	by = &Author{Stream: Stream{Site: bourse.WorkerID(b.Site), Epoch: uint64(b.Signed)}, Birth: b.Birth}
	if err := by.Read(p.verifier.Keys); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.authors) >= maxAuthors {
		clear(p.authors)
	}
	p.authors[k] = by
	return by, nil
}
