package gossip

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// signer is a server with a key.
type signer struct{ private ed25519.PrivateKey }

func newSigner(name string) signer {
	seed := sha256.Sum256([]byte(name))
	return signer{ed25519.NewKeyFromSeed(seed[:])}
}

func (s signer) sign(statement []byte) ([]byte, error) {
	return ed25519.Sign(s.private, statement), nil
}

func (s signer) Verify(statement, signature []byte) bool {
	return ed25519.Verify(s.private.Public().(ed25519.PublicKey), statement, signature)
}

func (signer) HasTag(tag bourse.WorkerTag) bool { return tag == 0xabcdef }

// proofless is a Proofs that makes Members require proofs, but provides none.
type proofless struct{ Proofs }

// judging returns a member that knows the keys of these workers.
func judging(ids ...bourse.WorkerID) *Members {
	m := &Members{config: Config{ClusterID: "c", Proofs: proofless{}}, fetchKeys: make(chan struct{}, 1)}
	m.keys, m.unverified, m.nodes = map[identity]Key{}, map[string]*unverified{}, map[string]node{}
	for _, id := range ids {
		m.keys[identity{id, bourse.RoleWorker}] = newSigner(string(id))
	}
	return m
}

func peerOf(name string, meta []byte) *memberlist.Node {
	return &memberlist.Node{Name: name, Addr: []byte{10, 0, 0, 1}, Port: 7946, Meta: meta}
}

const at = "10.0.0.1:7946"

// said returns a worker's metadata. The server with the name by has signed it.
func said(t rapid.TB, m bourse.Member, boot, by string, now time.Time) []byte {
	meta, err := signMeta(encodeMeta("c", m, false), nodeName(m.ID, boot), at, uint64(now.UnixMilli()), newSigner(by).sign)
	if err != nil {
		t.Fatal(err)
	}
	return meta
}

func natural(id bourse.WorkerID) bourse.Member {
	return bourse.Member{ID: id, Role: bourse.RoleWorker, Region: "gru", Address: "10.0.0.1:4000", Tag: id.Tags()[0]}
}

// TestJudge checks that metadata is accepted only if the member itself has signed it and it
// contains one of the member's own tags.
func TestJudge(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	changed := func(change func(*bourse.Member)) bourse.Member {
		m := natural("w1")
		change(&m)
		return m
	}
	for _, tt := range []struct {
		name string
		as   bourse.WorkerID
		meta []byte
		want verdict
	}{
		{"its own", "w1", said(t, natural("w1"), boot, "w1", now), proven},
		{"the second of its tags", "w1", said(t, changed(func(m *bourse.Member) { m.Tag = m.ID.Tags()[1] }), boot, "w1", now), proven},
		{"no tag yet", "w1", said(t, changed(func(m *bourse.Member) { m.Tag = 0 }), boot, "w1", now), proven},
		{"a tag that its certificate contains", "w1", said(t, changed(func(m *bourse.Member) { m.Tag = 0xabcdef }), boot, "w1", now), proven},
		{"another's tag", "w1", said(t, changed(func(m *bourse.Member) { m.Tag = bourse.WorkerID("w2").Tags()[0] }), boot, "w1", now), unproven},
		{"no signature", "w1", encodeMeta("c", natural("w1"), false), unproven},
		{"another worker's signature", "w1", said(t, natural("w1"), boot, "w2", now), unknown},
		{"another worker's statement", "w2", said(t, natural("w1"), boot, "w1", now), unknown},
		{"an unknown worker", "w3", said(t, natural("w3"), boot, "w3", now), unknown},
		{"another role", "w1", said(t, changed(func(m *bourse.Member) { m.Role = bourse.RoleBroker }), boot, "w1", now), unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := judging("w1", "w2")
			n, err := decodeNode("c", nodeName(tt.as, boot), tt.meta)
			if err != nil {
				t.Fatal(err)
			}
			n.setPeer(peerOf(n.name, tt.meta))
			if got, err := m.judge(&n); got != tt.want {
				t.Errorf("got %v (%v), want %v", got, err, tt.want)
			}
		})
	}
}

// TestNotFromTheFuture checks that boots and metadata from the future are refused. A boot from
// next year would take precedence over all the server's real boots until then.
func TestNotFromTheFuture(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	bootAt := func(at time.Time) string { return string(bourse.EventIDAt(at, [10]byte{})) }
	for _, tt := range []struct {
		name        string
		boot, since time.Time
		ok          bool
	}{
		{"now", now, now, true},
		{"a clock that is somewhat ahead", now.Add(50 * time.Minute), now.Add(50 * time.Minute), true},
		{"a boot from tomorrow", now.Add(24 * time.Hour), now, false},
		{"a statement from tomorrow", now, now.Add(24 * time.Hour), false},
	} {
		m := judging("w1")
		name := nodeName("w1", bootAt(tt.boot))
		err := m.admit(peerOf(name, said(t, natural("w1"), bootAt(tt.boot), "w1", tt.since)), now)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestOlderStatementsAreLate checks that older metadata of a member does not replace newer
// metadata.
func TestOlderStatementsAreLate(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	m := judging("w1")
	m.changed, m.watchWork = make(chan struct{}), make(chan struct{}, 1)
	leaving := natural("w1")
	leaving.Leaving = true
	name := nodeName("w1", boot)
	m.putNode(peerOf(name, said(t, natural("w1"), boot, "w1", now.Add(time.Second))))
	m.putNode(peerOf(name, said(t, leaving, boot, "w1", now)))
	if n := m.nodes[name]; !n.proven || n.member.Leaving {
		t.Errorf("got %+v, want the latest statement", n)
	}
	m.putNode(peerOf(name, said(t, leaving, boot, "w2", now.Add(time.Minute))))
	if n := m.nodes[name]; !n.proven || n.member.Leaving {
		t.Errorf("got %+v, want the proven statement", n)
	}
}

// TestDoubtfulAreBounded checks that the number of remembered unknown members is limited, and
// that known members are admitted even when the limit has been reached.
func TestDoubtfulAreBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	m := judging("w1")
	strange := said(t, natural("w9"), boot, "w9", now)
	for i := range 2 * maxUnverified {
		life := string(bourse.EventIDAt(now, [10]byte{byte(i), byte(i >> 8)}))
		_ = m.admit(peerOf(nodeName("w9", life), strange), now)
	}
	if n := len(m.unverified); n != maxUnverified {
		t.Errorf("%d unknown members are remembered, want %d", n, maxUnverified)
	}
	if err := m.admit(peerOf(nodeName("w1", boot), said(t, natural("w1"), boot, "w1", now)), now); err != nil {
		t.Errorf("a known member: %v", err)
	}
}

// TestForgedMetaProvesNothing combines parts of genuine metadata arbitrarily. Only unchanged
// metadata may be accepted.
func TestForgedMetaProvesNothing(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	genuine := map[string][]byte{}
	for _, id := range []bourse.WorkerID{"w1", "w2"} {
		for _, since := range []time.Time{now, now.Add(time.Minute)} {
			genuine[nodeName(id, boot)+since.String()] = said(t, natural(id), boot, string(id), since)
		}
	}
	keys := []string{}
	for k := range genuine {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	rapid.Check(t, func(t *rapid.T) {
		from := genuine[rapid.SampledFrom(keys).Draw(t, "from")]
		other := genuine[rapid.SampledFrom(keys).Draw(t, "other")]
		meta := bytes.Clone(from)
		switch rapid.SampledFrom([]string{"flip", "splice", "cut", "none"}).Draw(t, "change") {
		case "flip":
			meta[rapid.IntRange(0, len(meta)-1).Draw(t, "at")] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
		case "splice":
			i := rapid.IntRange(0, len(meta)).Draw(t, "head")
			meta = append(meta[:i], other[min(i, len(other)):]...)
		case "cut":
			meta = meta[:rapid.IntRange(0, len(meta)).Draw(t, "length")]
		}
		name := rapid.SampledFrom([]string{nodeName("w1", boot), nodeName("w2", boot), nodeName("w1", "01J00000000000000000000000")}).Draw(t, "name")
		peer := peerOf(name, meta)
		if rapid.Bool().Draw(t, "elsewhere") {
			peer.Port++
		}
		m := judging("w1", "w2")
		n, err := decodeNode("c", name, meta)
		if err != nil {
			return
		}
		n.setPeer(peer)
		got, _ := m.judge(&n)
		was := peer.Port == 7946 && slices.ContainsFunc(keys, func(k string) bool {
			return k[:len(name)] == name && bytes.Equal(genuine[k][:len(n.signed)], n.signed) && bytes.Contains(meta, n.signed)
		})
		if got == proven && !was {
			t.Errorf("%s is accepted with %x", name, meta)
		}
	})
}
