package gossip

import (
	"encoding/binary"
	"net"
	"strconv"
	"strings"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
)

// What a member says of itself has at most 512 bytes (memberlist.MetaMaxSize):
//
//	version    1 byte, wireVersion
//	claims     CBOR; a later release may add fields, which are ignored
//	since      CBOR, where members sign: milliseconds of the Unix epoch at which
//	           it said so, or somewhat more: it never says two things at one time
//	signature  all that is left, over all that is before it and the member's name
//	           and address in the group; by the key of its certificate
//
// Its id is in its name.
const wireVersion = 1

// claims are what a member says of itself.
type claims struct {
	Cluster string           `cbor:"1,keyasint"`
	Role    bourse.Role      `cbor:"2,keyasint"`
	Region  bourse.Region    `cbor:"3,keyasint,omitempty"` // none: the server is in no region
	Address string           `cbor:"4,keyasint"`           // host:port of the API
	Tag     bourse.WorkerTag `cbor:"5,keyasint,omitempty"`
	Pending bool             `cbor:"6,keyasint,omitempty"` // has joined and not yet found out whether its id is free
	Leaving bool             `cbor:"7,keyasint,omitempty"`
}

// Bounds of what is read.
const (
	maxMeta      = 512
	maxText      = 255
	maxSignature = 384 // of RSA with 3072 bits
)

// node is one member of the gossip group.
type node struct {
	name      string // "id@boot"
	boot      string
	member    bourse.Member
	pending   bool
	gossip    string           // its address in the group, host:port
	since     uint64           // when it said so: milliseconds of the Unix epoch; 0 when it is not signed
	signed    []byte           // what the signature is over, but for name and address
	signature []byte           // nil: it is not signed
	proven    bool             // by its signature, or none is asked for
	peer      *memberlist.Node // as memberlist passed it; never changed
}

func nodeName(id bourse.WorkerID, boot string) string { return string(id) + "@" + boot }

// encodeMeta writes what a member says of itself, without a signature.
func encodeMeta(cluster string, m bourse.Member, pending bool) []byte {
	b, err := codec.Marshal(claims{cluster, m.Role, m.Region, m.Address, m.Tag, pending, m.Leaving})
	if err != nil {
		panic(err) // texts and numbers can always be encoded
	}
	return append([]byte{wireVersion}, b...)
}

// signMeta adds a signature to what a member says of itself.
func signMeta(meta []byte, name, gossip string, since uint64, sign func([]byte) ([]byte, error)) ([]byte, error) {
	b, err := codec.Marshal(since)
	if err != nil {
		return nil, err
	}
	meta = append(meta, b...)
	signature, err := sign(statement(name, gossip, meta))
	if err != nil {
		return nil, err
	}
	meta = append(meta, signature...)
	if len(meta) > maxMeta || len(signature) > maxSignature {
		return nil, bourse.Errorf(bourse.CodeInvalid, "signed, what this server says of itself has %d bytes, of at most %d: use a certificate with an elliptic curve key", len(meta), maxMeta)
	}
	return meta, nil
}

// statement is what a member signs.
func statement(name, gossip string, signed []byte) []byte {
	b := []byte("member\x00")
	for _, text := range []string{name, gossip} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return append(b, signed...)
}

// decodeNode reads what a member says of itself and reports CodeInvalid for
// what no server of this cluster and release could say.
func decodeNode(cluster, name string, meta []byte) (node, error) {
	id, boot, _ := strings.Cut(name, "@")
	n := node{name: name, boot: boot}
	n.member.ID = bourse.WorkerID(id)
	if err := n.member.ID.Validate(); err != nil {
		return node{}, err
	}
	if bourse.OrderID(boot).Validate() != nil { // a ULID as well
		return node{}, bourse.Errorf(bourse.CodeInvalid, "its name %s has no boot", bourse.Quoted(name))
	}
	if len(meta) == 0 || meta[0] != wireVersion {
		return node{}, bourse.Errorf(bourse.CodeInvalid, "it does not speak version %d, as we do", wireVersion)
	}
	var c claims
	rest, err := codec.UnmarshalFirst(meta[1:], &c)
	if err == nil && len(rest) > 0 {
		if rest, err = codec.UnmarshalFirst(rest, &n.since); err == nil {
			n.signed, n.signature = meta[:len(meta)-len(rest)], rest
		}
	}
	switch {
	case err != nil, len(meta) > maxMeta, len(n.signature) > maxSignature:
		return node{}, bourse.Errorf(bourse.CodeInvalid, "what it says of itself is malformed or too long")
	case c.Cluster != cluster:
		return node{}, bourse.Errorf(bourse.CodeInvalid, "it belongs to cluster %s, we to %s", bourse.Quoted(c.Cluster), bourse.Quoted(cluster))
	}
	n.pending = c.Pending
	n.member = bourse.Member{ID: n.member.ID, Role: c.Role, Region: c.Region, Address: c.Address, Tag: c.Tag, Leaving: c.Leaving}
	return n, validateMember(&n.member)
}

// validateMember reports CodeInvalid for a member that no server can be.
func validateMember(m *bourse.Member) error {
	if err := m.ID.Validate(); err != nil {
		return err
	}
	if bourse.WorkerID(m.Role).Validate() != nil || m.Role == bourse.RoleScraper { // the same alphabet; roles of later releases are kept
		return bourse.Errorf(bourse.CodeInvalid, "role %s", bourse.Quoted(string(m.Role)))
	}
	if m.Role == bourse.RoleWorker || m.Region != "" {
		if err := m.Region.Validate(); err != nil {
			return err
		}
	}
	if m.Tag > 0xffffff {
		return bourse.Errorf(bourse.CodeInvalid, "tag %d has more than 24 bits", m.Tag)
	}
	return validateAddress(m.Address)
}

// validateAddress wants host:port, as something to dial and nothing else.
func validateAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	n, numeric := strconv.ParseUint(port, 10, 16)
	strange := func(r rune) bool {
		plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-:%_", r)
		return !plain
	}
	if err != nil || numeric != nil || n == 0 || host == "" || len(s) > maxText || strings.ContainsFunc(host, strange) {
		return bourse.Errorf(bourse.CodeInvalid, "address %s: want host:port", bourse.Quoted(s))
	}
	return nil
}
