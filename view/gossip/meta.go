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

// A member's metadata is at most 512 bytes long (memberlist.MetaMaxSize):
//
//	version    1 byte, wireVersion
//	claims     CBOR; later releases may add fields, which are ignored
//	since      CBOR, only in signed metadata: milliseconds of the Unix epoch at which the
//	           metadata was created, increased if necessary so that it is unique
//	signature  the rest: a signature, with the key of the member's certificate, of everything
//	           before it and of the member's name and address in the group
//
// The member's id is in its name.
const wireVersion = 1

// memberMeta contains the claims in a member's metadata.
type memberMeta struct {
	Cluster string           `cbor:"1,keyasint"`
	Role    bourse.Role      `cbor:"2,keyasint"`
	Region  bourse.Region    `cbor:"3,keyasint,omitempty"` // empty if the server has no region
	Address string           `cbor:"4,keyasint"`           // host:port of the API
	Tag     bourse.WorkerTag `cbor:"5,keyasint,omitempty"`
	Pending bool             `cbor:"6,keyasint,omitempty"` // whether the server has joined but has not yet checked that its id is free
	Leaving bool             `cbor:"7,keyasint,omitempty"`
}

// Limits on incoming metadata, in bytes: the total size, the size of a text, and the size of the
// signature.
const (
	maxMeta      = 512
	maxText      = 255
	maxSignature = 384 // size of a signature with a 3072-bit RSA key
)

// node is a member of the gossip group.
type node struct {
	name      string // "id@boot"
	boot      string
	member    bourse.Member
	pending   bool
	gossip    string           // the member's address in the group, host:port
	since     uint64           // creation time in milliseconds of the Unix epoch; 0 if not signed
	signed    []byte           // the signed metadata; the signature also covers the name and address
	signature []byte           // nil if the metadata is not signed
	proven    bool             // whether the signature is valid, or no proof is required
	peer      *memberlist.Node // copy of the node in memberlist; immutable
}

func nodeName(id bourse.WorkerID, boot string) string { return string(id) + "@" + boot }

// encodeMeta encodes a member's metadata without a signature.
func encodeMeta(cluster string, m bourse.Member, pending bool) []byte {
	b, err := codec.Marshal(memberMeta{cluster, m.Role, m.Region, m.Address, m.Tag, pending, m.Leaving})
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	return append([]byte{wireVersion}, b...)
}

// signMeta adds the creation time and a signature to a member's metadata.
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
		return nil, bourse.Errorf(bourse.CodeInvalid, "this server's signed metadata has %d bytes, but at most %d are allowed: use a certificate with an elliptic curve key", len(meta), maxMeta)
	}
	return meta, nil
}

// statement returns the data that a member's signature covers.
func statement(name, gossip string, signed []byte) []byte {
	b := []byte("member\x00")
	for _, text := range []string{name, gossip} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return append(b, signed...)
}

// decodeNode decodes a member's metadata. It returns CodeInvalid if the metadata cannot come from a
// server of this cluster that uses the same protocol version.
func decodeNode(cluster, name string, meta []byte) (node, error) {
	id, boot, _ := strings.Cut(name, "@")
	n := node{name: name, boot: boot}
	n.member.ID = bourse.WorkerID(id)
	if err := n.member.ID.Validate(); err != nil {
		return node{}, err
	}
	if bourse.OrderID(boot).Validate() != nil { // a ULID, so it has the form of an order id
		return node{}, bourse.Errorf(bourse.CodeInvalid, "its name %s does not contain a boot", bourse.Quoted(name))
	}
	if len(meta) == 0 || meta[0] != wireVersion {
		return node{}, bourse.Errorf(bourse.CodeInvalid, "it does not use protocol version %d", wireVersion)
	}
	var c memberMeta
	rest, err := codec.UnmarshalFirst(meta[1:], &c)
	if err == nil && len(rest) > 0 {
		if rest, err = codec.UnmarshalFirst(rest, &n.since); err == nil {
			n.signed, n.signature = meta[:len(meta)-len(rest)], rest
		}
	}
	switch {
	case err != nil, len(meta) > maxMeta, len(n.signature) > maxSignature:
		return node{}, bourse.Errorf(bourse.CodeInvalid, "its metadata is malformed or too long")
	case c.Cluster != cluster:
		return node{}, bourse.Errorf(bourse.CodeInvalid, "it belongs to cluster %s, this server to %s", bourse.Quoted(c.Cluster), bourse.Quoted(cluster))
	}
	n.pending = c.Pending
	n.member = bourse.Member{ID: n.member.ID, Role: c.Role, Region: c.Region, Address: c.Address, Tag: c.Tag, Leaving: c.Leaving}
	return n, validateMember(&n.member)
}

// validateMember returns CodeInvalid if a field of m has a value that no server can have.
func validateMember(m *bourse.Member) error {
	if err := m.ID.Validate(); err != nil {
		return err
	}
	if bourse.WorkerID(m.Role).Validate() != nil || m.Role == bourse.RoleScraper { // ids use the same alphabet; unknown roles are accepted
		return bourse.Errorf(bourse.CodeInvalid, "invalid role %s", bourse.Quoted(string(m.Role)))
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

// validateAddress returns an error unless s is a valid host:port to dial.
func validateAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	n, numeric := strconv.ParseUint(port, 10, 16)
	strange := func(r rune) bool {
		plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-:%_", r)
		return !plain
	}
	if err != nil || numeric != nil || n == 0 || host == "" || len(s) > maxText || strings.ContainsFunc(host, strange) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid address %s: use host:port", bourse.Quoted(s))
	}
	return nil
}
