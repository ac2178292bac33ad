package gossip

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

const boot = "01JZZZZZZZZZZZZZZZZZZZZZZZ"

func largest() bourse.Member {
	return bourse.Member{
		ID: bourse.WorkerID(strings.Repeat("w", 63)), Role: bourse.RoleWorker, Region: bourse.Region(strings.Repeat("r", 32)),
		Address: strings.Repeat("a", 249) + ":65535", Tag: 0xffffff, Leaving: true,
	}
}

func TestMetaBothWays(t *testing.T) {
	tests := map[string]bourse.Member{
		"a worker":           {ID: "w1", Role: bourse.RoleWorker, Region: "gru", Address: "10.0.0.1:4000", Tag: 7},
		"one that leaves":    {ID: "w1", Role: bourse.RoleWorker, Region: "gru", Address: "10.0.0.1:4000", Leaving: true},
		"a broker":           {ID: "b1", Role: bourse.RoleBroker, Address: "[fe80::1%eth0]:4280"},
		"a host by its name": {ID: "b1", Role: bourse.RoleBroker, Address: "broker_1.example.com:4280"},
		"a later role":       {ID: "p1", Role: "proxy", Region: "mad", Address: "127.0.0.1:1"},
	}
	for name, want := range tests {
		for _, pending := range []bool{false, true} {
			got, err := decodeNode("c", nodeName(want.ID, boot), encodeMeta("c", want, pending))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if d := cmp.Diff(want, got.member); d != "" || got.pending != pending || got.boot != boot {
				t.Errorf("%s: pending %v, boot %s (-want +got):\n%s", name, got.pending, got.boot, d)
			}
		}
	}
}

// TestMetaFits checks that the longest possible metadata fits the limits.
func TestMetaFits(t *testing.T) {
	m := largest()
	cluster := strings.Repeat("c", 63)
	b := encodeMeta(cluster, m, true)
	if len(b) > maxMeta {
		t.Fatalf("encoded in %d bytes, want at most %d", len(b), maxMeta)
	}
	got, err := decodeNode(cluster, nodeName(m.ID, boot), b)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	if d := cmp.Diff(m, got.member); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := bourse.Member{ID: "w1", Role: bourse.RoleWorker, Region: "gru", Address: "10.0.0.1:4000", Tag: 7}
	meta := encodeMeta("c", good, false)
	name := nodeName("w1", boot)
	changed := func(change func(*bourse.Member)) []byte {
		m := good
		change(&m)
		return encodeMeta("c", m, false)
	}
	tests := []struct {
		name   string
		member string
		meta   []byte
	}{
		{"nothing", name, nil},
		{"garbage", name, bytes.Repeat([]byte{0xff}, 200)},
		{"another version", name, append([]byte{wireVersion + 1}, meta[1:]...)},
		{"another cluster", name, encodeMeta("d", good, false)},
		{"too long", name, append(bytes.Clone(meta), make([]byte, 600)...)},
		{"a text of 2^63 bytes", name, binary.BigEndian.AppendUint64([]byte{wireVersion, 0xa1, 1, 0x7b}, 1<<63)},
		{"no boot", "w1", meta},
		{"an invalid boot", "w1@1", meta},
		{"no id", "@" + boot, meta},
		{"an id with a slash", "../w1@" + boot, meta},
		{"no role", name, changed(func(m *bourse.Member) { m.Role = "" })},
		{"a role of control characters", name, changed(func(m *bourse.Member) { m.Role = "a\nb" })},
		{"a worker without a region", name, changed(func(m *bourse.Member) { m.Region = "" })},
		{"a region that is an alias", name, changed(func(m *bourse.Member) { m.Region = "any" })},
		{"no address", name, changed(func(m *bourse.Member) { m.Address = "" })},
		{"no host", name, changed(func(m *bourse.Member) { m.Address = ":80" })},
		{"no port", name, changed(func(m *bourse.Member) { m.Address = "a:" })},
		{"port 0", name, changed(func(m *bourse.Member) { m.Address = "a:0" })},
		{"port 65536", name, changed(func(m *bourse.Member) { m.Address = "a:65536" })},
		{"an address with a path", name, changed(func(m *bourse.Member) { m.Address = "a/b:80" })},
		{"an address with a line break", name, changed(func(m *bourse.Member) { m.Address = "a\r\nb:80" })},
		{"an address with a user", name, changed(func(m *bourse.Member) { m.Address = "u@a:80" })},
		{"a tag of 25 bits", name, changed(func(m *bourse.Member) { m.Tag = 1 << 24 })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n, err := decodeNode("c", tt.member, tt.meta); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("got %+v, %v; want invalid", n, err)
			}
		})
	}
	for i := range meta { // truncate the metadata at each position
		if n, err := decodeNode("c", name, meta[:i]); err == nil {
			t.Errorf("truncated to %d bytes: got %+v", i, n)
		}
	}
	if _, err := decodeNode("c", name, append(bytes.Clone(meta), 1, 2, 3)); err != nil {
		t.Errorf("with additional bytes from a later release: %v", err)
	}
}

func FuzzMember(f *testing.F) {
	f.Add("w1@"+boot, encodeMeta("c", bourse.Member{ID: "w1", Role: bourse.RoleWorker, Region: "gru", Address: "10.0.0.1:4000", Tag: 7}, false))
	f.Add("w1@"+boot, encodeMeta("c", largest(), true))
	signed, err := signMeta(encodeMeta("c", largest(), true), "w1@"+boot, "10.0.0.1:1", 1000, func([]byte) ([]byte, error) { return []byte("signature"), nil })
	if err != nil {
		f.Fatal(err)
	}
	f.Add("w1@"+boot, signed)
	f.Add("w1", []byte{wireVersion, 0xa1, 1, 0x61, 'c'})
	f.Add("", []byte(nil))
	f.Fuzz(func(t *testing.T, name string, meta []byte) {
		n, err := decodeNode("c", name, meta)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("got %v (%s), want invalid", err, bourse.CodeOf(err))
			}
			return
		}
		again, err := decodeNode("c", name, encodeMeta("c", n.member, n.pending))
		if err != nil {
			t.Fatalf("decode the encoded member: %v", err)
		}
		if d := cmp.Diff(n.member, again.member); d != "" {
			t.Errorf("decoded, encoded and decoded again (-first +second):\n%s", d)
		}
	})
}
