package replication

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

// Members send each other envelopes, both in packets and over HTTP. An envelope has this format:
//
//	version  1 byte, envelopeVersion
//	cluster  8 bytes: FNV-1a hash of the cluster's id
//	frames   each: kind (1 byte), length (uvarint), body
//
// A reader skips frames of unknown kinds, and any bytes after the known part of a body, because
// later releases may add both.
const envelopeVersion = 1

const envelopeHead = 1 + 8

// maxSite is the maximum length of a site's name, in bytes.
const maxSite = 255

// kind is the type of a frame.
type kind byte

const (
	kindFrom        kind = iota + 1 // the sender's id, as text
	kindTransaction                 // an encoded transaction
	kindAnnounce                    // a position up to which the sender has the stream
	kindHead                        // position, hash (8 bytes), at (varint)
	kindSums                        // checksums of the heads and the shared rows (8 bytes each), number of streams (uvarint)
	kindBuckets                     // all buckets' checksums, 4 bytes each
	kindBucketList                  // the requested buckets, one byte each
	kindWant                        // a position; the caller requests the stream's transactions after it
	kindSnapshot                    // position of the sender's head in a stream; the requested transactions are available only as a snapshot
	kindBudget                      // uvarint: approximate maximum size of the response, in bytes
	kindMore                        // empty: the response is incomplete
	kindNew                         // empty: the sender does not know the cluster yet
)

// frame is an element of an envelope. Its body is a slice of the envelope's bytes.
type frame struct {
	kind kind
	body []byte
}

// clusterCheck returns the hash of a cluster's id that every envelope contains.
func clusterCheck(cluster string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(cluster)) // Write never fails
	return h.Sum64()
}

// refusal is the reason a message was refused. It implements error.
type refusal string

const (
	refusedVersion refusal = "unsupported wire version"
	refusedCluster refusal = "sent by a server of another cluster"
	refusedShape   refusal = "malformed"
	refusedForged  refusal = "not signed by the site that it names"
)

func (r refusal) Error() string { return string(r) }

// newEnvelope returns an envelope without frames.
func newEnvelope(check uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{envelopeVersion}, check)
}

// openEnvelope returns the frames of an envelope. All errors that it returns are of type refusal.
func openEnvelope(check uint64, b []byte) ([]frame, error) {
	if len(b) == 0 {
		return nil, refusedShape
	}
	if b[0] != envelopeVersion {
		return nil, refusedVersion
	}
	if len(b) < envelopeHead {
		return nil, refusedShape
	}
	if binary.BigEndian.Uint64(b[1:]) != check {
		return nil, refusedCluster
	}
	var out []frame
	for r := (reader{rest: b[envelopeHead:]}); len(r.rest) > 0; {
		f := frame{kind: kind(r.byte()), body: r.bytes()}
		if r.short {
			return nil, refusedShape
		}
		out = append(out, f)
	}
	return out, nil
}

func appendFrame(b []byte, k kind, body []byte) []byte {
	return append(binary.AppendUvarint(append(b, byte(k)), uint64(len(body))), body...)
}

// frameSize returns the encoded size of a frame whose body has n bytes.
func frameSize(n int) int {
	size := 1 + n
	for v := uint64(n); ; v >>= 7 {
		size++
		if v < 0x80 {
			return size
		}
	}
}

func encodePosition(p wire.Position) []byte {
	b := binary.AppendUvarint(nil, p.Epoch)
	b = binary.AppendUvarint(b, p.Seq)
	b = binary.AppendUvarint(b, uint64(len(p.Site)))
	return append(b, p.Site...)
}

// position reads a position that encodePosition has encoded.
func (r *reader) position() wire.Position {
	var p wire.Position
	p.Epoch, p.Seq, p.Site = r.uvarint(), r.uvarint(), bourse.WorkerID(r.text())
	if p.Site.Validate() != nil {
		r.short = true
	}
	return p
}

func readPosition(b []byte) (wire.Position, bool) {
	r := reader{rest: b}
	p := r.position()
	return p, !r.short
}

func encodeHead(h view.Head) []byte {
	b := encodePosition(h.Position)
	b = binary.BigEndian.AppendUint64(b, h.Hash)
	return binary.AppendVarint(b, h.At)
}

func readHead(b []byte) (view.Head, bool) {
	r := reader{rest: b}
	h := view.Head{Position: r.position(), Hash: r.uint64(), At: r.varint()}
	return h, !r.short
}

// sums contains the checksums that two members exchange when a comparison begins.
type sums struct {
	heads, shared uint64
	streams       uint64
}

func encodeSums(s sums) []byte {
	b := binary.BigEndian.AppendUint64(nil, s.heads)
	b = binary.BigEndian.AppendUint64(b, s.shared)
	return binary.AppendUvarint(b, s.streams)
}

func readSums(b []byte) (sums, bool) {
	r := reader{rest: b}
	s := sums{heads: r.uint64(), shared: r.uint64(), streams: r.uvarint()}
	return s, !r.short
}

// bytes reads a length-prefixed byte string.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.short = true
		return nil
	}
	return r.take(int(n))
}

func (r *reader) uint64() uint64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 || r.short {
		r.short = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// reader decodes values from a byte slice. If the slice ends too early or is malformed, the reader
// sets short and returns zero values from then on.
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
	if n > maxSite {
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
