package replication

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

var check = clusterCheck("c")

func position(site string, epoch, seq uint64) wire.Position {
	return wire.Position{Stream: wire.Stream{Site: bourse.WorkerID(site), Epoch: epoch}, Seq: seq}
}

func TestEnvelopeBothWays(t *testing.T) {
	p := position("w1", 1_800_000_000_000, 77)
	h := view.Head{Position: p, Hash: 1 << 63, At: -5}
	s := sums{heads: 1, shared: 1 << 63, streams: 1000}
	b := newEnvelope(check)
	b = appendFrame(b, kindFrom, []byte("w1"))
	b = appendFrame(b, kindTransaction, bytes.Repeat([]byte{7}, 300))
	b = appendFrame(b, kindAnnounce, encodePosition(p))
	b = appendFrame(b, kindHead, encodeHead(h))
	b = appendFrame(b, kindSums, encodeSums(s))
	b = appendFrame(b, kindMore, nil)
	b = appendFrame(b, 200, []byte("from a later release"))
	frames, err := openEnvelope(check, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(frames) != 7 || sender(frames) != "w1" || len(frames[1].body) != 300 {
		t.Fatalf("got %v", frames)
	}
	later := func(f frame) []byte { return append(bytes.Clone(f.body), 1, 2, 3) } // adds fields of a later release
	if got, ok := readPosition(later(frames[2])); !ok || got != p {
		t.Errorf("position: got %v", got)
	}
	if got, ok := readHead(later(frames[3])); !ok || got != h {
		t.Errorf("head: got %v", got)
	}
	if got, ok := readSums(later(frames[4])); !ok || got != s {
		t.Errorf("sums: got %v", got)
	}
	size := envelopeHead
	for _, f := range frames {
		size += frameSize(len(f.body))
	}
	if size != len(b) {
		t.Errorf("the envelope has %d bytes, its frames add up to %d", len(b), size)
	}
}

func TestEnvelopeRefuses(t *testing.T) {
	good := appendFrame(newEnvelope(check), kindFrom, []byte("w1"))
	tests := []struct {
		name string
		b    []byte
		want refusal
	}{
		{"nothing", nil, refusedShape},
		{"another version", append([]byte{2}, good[1:]...), refusedVersion},
		{"another cluster", appendFrame(newEnvelope(clusterCheck("d")), kindFrom, []byte("w1")), refusedCluster},
		{"truncated in the header", good[:5], refusedShape},
		{"truncated in a frame", good[:len(good)-1], refusedShape},
		{"a frame of 2^63 bytes", append(newEnvelope(check), 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), refusedShape},
	}
	for _, tt := range tests {
		if _, err := openEnvelope(check, tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

// FuzzEnvelope opens arbitrary envelopes, and reads each frame as a frame of each kind.
func FuzzEnvelope(f *testing.F) {
	whole := appendFrame(newEnvelope(check), kindHead, encodeHead(view.Head{Position: position("w1", 5, 7), Hash: 3, At: 9}))
	f.Add(whole)
	f.Add(appendFrame(whole, kindBuckets, make([]byte, 4*buckets)))
	f.Add(whole[:len(whole)-2])
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := openEnvelope(check, b)
		if err != nil {
			if _, ok := errors.AsType[refusal](err); !ok {
				t.Errorf("got %v, want a refusal", err)
			}
			return
		}
		again := newEnvelope(check)
		for _, f := range frames {
			again = appendFrame(again, f.kind, f.body)
			if p, ok := readPosition(f.body); ok {
				if q, ok := readPosition(encodePosition(p)); !ok || p != q {
					t.Errorf("position %v became %v", p, q)
				}
			}
			if h, ok := readHead(f.body); ok {
				if g, ok := readHead(encodeHead(h)); !ok || h != g {
					t.Errorf("head %v became %v", h, g)
				}
			}
			_, _ = readSums(f.body)
			_ = decodeBuckets(f.body)
		}
		if _, err := openEnvelope(check, again); err != nil {
			t.Errorf("encoded again, the envelope is refused: %v", err)
		}
	})
}

// FuzzDigest checks that arbitrary requests for a digest never fail, and that the response has a
// limited size.
func FuzzDigest(f *testing.F) {
	d := many(300)
	ask := appendFrame(newEnvelope(check), kindSums, encodeSums(sums{1, 2, 3}))
	f.Add(ask)
	f.Add(appendFrame(ask, kindBucketList, []byte{0, 1, 2, 255}))
	f.Add(appendFrame(ask, kindHead, encodeHead(d.Heads[0])))
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := openEnvelope(check, b)
		if err != nil {
			return
		}
		answer := answerDigest(d, frames, newEnvelope(check))
		if len(answer) > maxDigestBody {
			t.Errorf("the response has %d bytes", len(answer))
		}
		back, err := openEnvelope(check, answer)
		if err != nil {
			t.Fatal(err)
		}
		c := comparison{ours: digestOf(d), heads: map[wire.Stream]view.Head{}}
		if sums := c.read(back); sums != nil {
			c.ours.differingBuckets(sums, c.heads)
		}
		budget, positions := readPull(frames)
		if budget < minChunk || budget > maxChunk || len(positions) > maxPullStreams {
			t.Errorf("the pull has %d bytes and %d streams", budget, len(positions))
		}
	})
}

// many returns a digest of n streams.
func many(n int) view.Digest {
	var d view.Digest
	for i := range n {
		d.Heads = append(d.Heads, view.Head{Position: position(fmt.Sprintf("worker-%d", i), 1_800_000_000_000, uint64(i+1)), Hash: mixBits(uint64(i)), At: int64(i)})
	}
	return d
}

// TestCompare checks that a comparison of views with 1000 streams finds every difference, and
// that it transfers few bytes.
func TestCompare(t *testing.T) {
	tests := []struct {
		name     string
		change   func(*view.Digest)
		differ   int
		maxBytes int
	}{
		{"equal", func(*view.Digest) {}, 0, 3000},
		{"changes in ten streams", func(d *view.Digest) { raise(d, 990, 1000, 2000) }, 10, 6000},
		{"one old stream", func(d *view.Digest) { d.Heads[3].Seq++ }, 1, 7000},
		{"a stream that the peer is missing", func(d *view.Digest) { d.Heads = d.Heads[1:] }, 1, 7000},
		{"a stream that we are missing", func(d *view.Digest) {
			d.Heads = append(d.Heads, view.Head{Position: position("new", 1, 1), At: 1})
		}, 1, 7000},
		{"another hash", func(d *view.Digest) { d.Heads[5].Hash++ }, 1, 7000},
		{"another shared hash", func(d *view.Digest) { d.Shared++ }, 0, 7000},
		{"all", func(d *view.Digest) { raise(d, 0, 1000, 1) }, 1000, 120_000},
		{"nothing there", func(d *view.Digest) { d.Heads = nil }, 1000, 20_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := many(1000), many(1000)
			tt.change(&theirs)
			found, bytes := compareBoth(t, ours, theirs)
			if len(found) != tt.differ {
				t.Errorf("%d streams differ, want %d", len(found), tt.differ)
			}
			want := digestOf(theirs)
			for s, h := range found {
				if d := cmp.Diff(want.heads[s].Seq, h.Seq); d != "" {
					t.Errorf("%v (-want +got):\n%s", s, d)
				}
			}
			if t.Logf("%d bytes", bytes); bytes > tt.maxBytes {
				t.Errorf("the comparison took %d bytes, want at most %d", bytes, tt.maxBytes)
			}
		})
	}
}

func raise(d *view.Digest, from, to int, by uint64) {
	for i := from; i < to; i++ {
		d.Heads[i].Seq += by
		d.Heads[i].At += int64(by)
	}
}

// compareBoth compares two digests without a network. It returns those of the peer's heads that
// differ, and the number of bytes exchanged.
func compareBoth(t *testing.T, ours, theirs view.Digest) (map[wire.Stream]view.Head, int) {
	t.Helper()
	c := comparison{ours: digestOf(ours), heads: map[wire.Stream]view.Head{}}
	total := 0
	ask := func(request []byte) []frame {
		frames, err := openEnvelope(check, request)
		if err != nil {
			t.Fatal(err)
		}
		answer := answerDigest(theirs, frames, newEnvelope(check))
		total += len(request) + len(answer)
		out, err := openEnvelope(check, answer)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if sums := c.read(ask(firstRequest(newEnvelope(check), ours, c.ours.sums))); sums != nil {
		for left := c.ours.differingBuckets(sums, c.heads); len(left) > 0; {
			part := left[:min(len(left), maxBuckets)]
			left = left[len(part):]
			c.read(ask(appendFrame(newEnvelope(check), kindBucketList, part)))
			c.noteMissing(part)
		}
	}
	for s, h := range c.heads {
		if c.ours.heads[s] == h {
			delete(c.heads, s)
		}
	}
	return c.heads, total
}
