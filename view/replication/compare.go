package replication

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

// Two members compare their views in two steps. The size of each message is bounded, regardless of
// the number of streams and differences:
//
// 1. The caller sends a checksum of all its heads, together with its most recently changed heads.
// If the peer has the same checksum, the comparison is complete. Otherwise, the peer divides the
// streams into 256 buckets. It responds with a checksum for each bucket, with its own most recently
// changed heads, and with its own head of each stream that the caller has listed with a different
// head.
//
// 2. If the listed heads do not explain why a bucket differs, the caller requests all heads in that
// bucket. It does so for a limited number of buckets at a time.
//
// Usually, the views differ only by the transactions of the last second, and step 2 is unnecessary.
const (
	buckets    = 256
	maxRecents = 48   // maximum number of heads in each message of step 1
	maxHeads   = 1024 // maximum number of heads in one response
	maxBuckets = 32   // maximum number of buckets in one request of step 2
)

// headSum returns a head's contribution to the checksums.
func headSum(h view.Head) uint64 {
	b := binary.BigEndian.AppendUint64(nil, h.Epoch)
	b = binary.BigEndian.AppendUint64(b, h.Seq)
	b = binary.BigEndian.AppendUint64(b, h.Hash)
	x := fnv.New64a()
	_, _ = x.Write(append(b, h.Site...)) // Write never fails
	return mixBits(x.Sum64())
}

// mixBits mixes x so that each bit of the result depends on all bits of x (the finalizer of
// SplitMix64). Without it, FNV's upper bits are too weak for checksums that are combined by XOR.
func mixBits(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// bucketOf returns the number of a stream's bucket.
func bucketOf(s wire.Stream) byte {
	x := fnv.New64a()
	_, _ = x.Write(append(binary.BigEndian.AppendUint64(nil, s.Epoch), s.Site...)) // Write never fails
	return byte(mixBits(x.Sum64()))
}

// bucketSums contains the checksum of each bucket, truncated to 32 bits.
type bucketSums [buckets]uint32

// digest summarizes a member's view for a comparison.
type digest struct {
	sums
	heads   map[wire.Stream]view.Head
	buckets bucketSums
}

func digestOf(d view.Digest) digest {
	out := digest{heads: make(map[wire.Stream]view.Head, len(d.Heads))}
	out.shared, out.streams = d.Shared, uint64(len(d.Heads))
	for _, h := range d.Heads {
		x := headSum(h)
		out.sums.heads ^= x
		out.buckets[bucketOf(h.Stream)] ^= uint32(x)
		out.heads[h.Stream] = h
	}
	return out
}

// latest returns the n heads that have changed most recently, the latest one first. If there are
// fewer heads, it returns all of them.
func latest(heads []view.Head, n int) []view.Head {
	sorted := slices.Clone(heads)
	slices.SortFunc(sorted, func(a, b view.Head) int { return cmp.Compare(b.At, a.At) })
	return sorted[:min(n, len(sorted))]
}

// encode encodes the checksums for a frame.
func (b *bucketSums) encode() []byte {
	out := make([]byte, 0, 4*buckets)
	for _, x := range b {
		out = binary.BigEndian.AppendUint32(out, x)
	}
	return out
}

// decodeBuckets decodes the checksums of all buckets. It returns nil if body is too short.
func decodeBuckets(body []byte) *bucketSums {
	if len(body) < 4*buckets {
		return nil
	}
	var out bucketSums
	for i := range out {
		out[i] = binary.BigEndian.Uint32(body[4*i:])
	}
	return &out
}

// differingBuckets returns the buckets whose checksums would still differ if this server had the
// heads that the peer has listed.
func (d *digest) differingBuckets(theirs *bucketSums, listed map[wire.Stream]view.Head) []byte {
	ours := d.buckets
	for s, h := range listed {
		b := bucketOf(s)
		if old, ok := d.heads[s]; ok {
			ours[b] ^= uint32(headSum(old))
		}
		if h.Seq > 0 { // Seq 0: the peer does not have the stream
			ours[b] ^= uint32(headSum(h))
		}
	}
	var out []byte
	for i, x := range ours {
		if x != theirs[i] {
			out = append(out, byte(i))
		}
	}
	return out
}

// firstRequest appends the frames of a request for step 1 to an envelope.
func firstRequest(envelope []byte, d view.Digest, s sums) []byte {
	envelope = appendFrame(envelope, kindSums, encodeSums(s))
	for _, h := range latest(d.Heads, maxRecents) {
		envelope = appendFrame(envelope, kindHead, encodeHead(h))
	}
	return envelope
}

// answerDigest appends the frames of the response to a request for step 1 or 2.
func answerDigest(d view.Digest, request []frame, envelope []byte) []byte {
	ours := digestOf(d)
	var theirs sums
	asked := map[byte]bool{}
	listed := map[wire.Stream]view.Head{}
	for _, f := range request {
		switch f.kind {
		case kindSums:
			theirs, _ = readSums(f.body)
		case kindHead:
			if h, ok := readHead(f.body); ok && len(listed) < maxHeads {
				listed[h.Stream] = h
			}
		case kindBucketList:
			for _, b := range f.body[:min(len(f.body), buckets)] {
				asked[b] = true
			}
		default: // skip frames that a later release may add
		}
	}
	envelope = appendFrame(envelope, kindSums, encodeSums(ours.sums))
	if len(asked) > 0 {
		return ours.appendAsked(envelope, d.Heads, asked)
	}
	if theirs == ours.sums {
		return envelope
	}
	envelope = appendFrame(envelope, kindBuckets, ours.buckets.encode())
	for s, h := range listed {
		if own, ok := ours.heads[s]; !ok {
			envelope = appendFrame(envelope, kindHead, encodeHead(view.Head{Position: wire.Position{Stream: s}})) // Seq 0: this server does not have the stream
		} else if own.Seq != h.Seq || own.Hash != h.Hash {
			envelope = appendFrame(envelope, kindHead, encodeHead(own))
		}
	}
	for _, h := range latest(d.Heads, maxRecents) {
		if _, ok := listed[h.Stream]; !ok {
			envelope = appendFrame(envelope, kindHead, encodeHead(h))
		}
	}
	return envelope
}

// appendAsked appends the heads in the requested buckets. If there are more than maxHeads, it
// appends only maxHeads of them, followed by a kindMore frame.
func (d *digest) appendAsked(envelope []byte, heads []view.Head, asked map[byte]bool) []byte {
	n := 0
	for _, h := range heads {
		if !asked[bucketOf(h.Stream)] {
			continue
		}
		if n++; n > maxHeads {
			return appendFrame(envelope, kindMore, nil)
		}
		envelope = appendFrame(envelope, kindHead, encodeHead(h))
	}
	return envelope
}
