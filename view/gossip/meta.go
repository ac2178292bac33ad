package gossip

import (
	"encoding/binary"
	"net"
	"strconv"
	"strings"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
)

// What a member says of itself, in at most 512 bytes (memberlist.MetaMaxSize):
//
//	version   1 byte, wireVersion
//	flags     1 byte
//	cluster   text: a length (uvarint), and so many bytes
//	role      text
//	region    text; empty for a server that stands nowhere
//	address   text, host:port of the API
//	tag       uvarint
//	free      a number (uvarint) of pairs: resource (text), amount (uvarint).
//	          None are written: what is free stands in the worker's row of the
//	          view. Those of an older release are ignored
//	since     uvarint, with flagSigned: milliseconds of the Unix epoch at which it
//	          said so, or somewhat more: it never says two things at one time
//	signature text, with flagSigned: over all that is before it, its name and its
//	          address in the group; by the key of its certificate
//	…         whatever a later release adds; ignored
//
// Its id stands in its name.
const wireVersion = 1

const (
	flagPending = 1 << iota // has joined and not yet found out whether its id is free
	flagLeaving
	flagSigned
)

// Bounds of what is read.
const (
	maxMeta      = 512
	maxText      = 255
	maxSignature = 384 // of RSA with 3072 bits
	maxAmounts   = 32
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
	peer      *memberlist.Node // as memberlist told of it; never changed
}

func nodeName(id bourse.WorkerID, boot string) string { return string(id) + "@" + boot }

// encodeMeta writes what a member says of itself, without a signature.
func encodeMeta(cluster string, m bourse.Member, pending bool) []byte {
	var flags byte
	if pending {
		flags |= flagPending
	}
	if m.Leaving {
		flags |= flagLeaving
	}
	b := make([]byte, 0, maxMeta)
	b = append(b, wireVersion, flags)
	for _, text := range []string{cluster, string(m.Role), string(m.Region), m.Address} {
		b = appendText(b, text)
	}
	b = binary.AppendUvarint(b, uint64(m.Tag))
	return append(b, 0) // no free amounts
}

// signMeta adds a signature to what a member says of itself.
func signMeta(meta []byte, name, gossip string, since uint64, sign func([]byte) ([]byte, error)) ([]byte, error) {
	meta[1] |= flagSigned
	meta = binary.AppendUvarint(meta, since)
	signature, err := sign(statement(name, gossip, meta))
	if err != nil {
		return nil, err
	}
	meta = appendText(meta, string(signature))
	if len(meta) > maxMeta || len(signature) > maxSignature {
		return nil, bourse.Errorf(bourse.CodeInvalid, "signed, what this server says of itself has %d bytes, of at most %d: use a certificate with an elliptic curve key", len(meta), maxMeta)
	}
	return meta, nil
}

// statement is what a member signs.
func statement(name, gossip string, signed []byte) []byte {
	b := appendText([]byte("member\x00"), name)
	return append(appendText(b, gossip), signed...)
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// decodeNode reads what a member says of itself and reports CodeInvalid for
// whatever no server of this cluster and release could say.
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
	r := reader{rest: meta}
	if version := r.byte(); version != wireVersion {
		return node{}, bourse.Errorf(bourse.CodeInvalid, "it speaks version %d, we speak %d", version, wireVersion)
	}
	flags := r.byte()
	n.pending, n.member.Leaving = flags&flagPending != 0, flags&flagLeaving != 0
	if of := r.text(); of != cluster {
		return node{}, bourse.Errorf(bourse.CodeInvalid, "it belongs to cluster %s, we to %s", bourse.Quoted(of), bourse.Quoted(cluster))
	}
	n.member.Role, n.member.Region, n.member.Address = bourse.Role(r.text()), bourse.Region(r.text()), r.text()
	tag := r.uvarint()
	amounts := r.uvarint()
	for range min(amounts, maxAmounts) {
		r.text()
		r.uvarint()
	}
	if flags&flagSigned != 0 {
		n.since = r.uvarint()
		n.signed = meta[:len(meta)-len(r.rest)]
		n.signature = r.take(int(min(r.uvarint(), maxSignature+1)))
		if len(n.signature) == 0 || len(n.signature) > maxSignature {
			r.short = true
		}
	}
	if r.short || len(meta) > maxMeta || amounts > maxAmounts || tag > 0xffffff {
		return node{}, bourse.Errorf(bourse.CodeInvalid, "what it says of itself is cut short or out of bounds")
	}
	n.member.Tag = bourse.WorkerTag(tag)
	return n, validateMember(&n.member)
}

// validateMember reports CodeInvalid for a member that no server can be.
func validateMember(m *bourse.Member) error {
	if err := m.ID.Validate(); err != nil {
		return err
	}
	if bourse.WorkerID(m.Role).Validate() != nil { // the same alphabet; roles of later releases are kept
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

// reader takes values off the front of bytes; short is set once they have run
// out, and from then on it gives zeros.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) byte() byte {
	b := r.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || r.short {
		r.short = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > maxText {
		r.short = true
		return ""
	}
	return string(r.take(int(n)))
}

func (r *reader) take(n int) []byte {
	if r.short || n > len(r.rest) {
		r.short = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}
