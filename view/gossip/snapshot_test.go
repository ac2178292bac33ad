package gossip

import (
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func life(id bourse.WorkerID, boot string, change ...func(*node)) node {
	n := node{name: nodeName(id, boot), boot: boot, proven: true, member: bourse.Member{ID: id, Role: bourse.RoleWorker, Region: "gru", Tag: tagOf(id), Address: string(id) + boot + ":1"}}
	for _, c := range change {
		c(&n)
	}
	return n
}

// tagOf returns a tag for an id; the few ids in these tests have different tags.
func tagOf(id bourse.WorkerID) bourse.WorkerTag {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return bourse.WorkerTag(h.Sum32()&0xffffff | 1)
}

func pending(n *node) { n.pending = true }
func leaving(n *node) { n.member.Leaving = true }
func broker(n *node)  { n.member.Role, n.member.Region = bourse.RoleBroker, "" }

func tag(t bourse.WorkerTag) func(*node) { return func(n *node) { n.member.Tag = t } }
func in(r bourse.Region) func(*node)     { return func(n *node) { n.member.Region = r } }

func group(nodes ...node) map[string]node {
	m := map[string]node{}
	for _, n := range nodes {
		m[n.name] = n
	}
	return m
}

func addresses(members []bourse.Member) []string {
	var out []string
	for _, m := range members {
		out = append(out, m.Address)
	}
	return out
}

func TestBuild(t *testing.T) {
	tests := []struct {
		name       string
		nodes      map[string]node
		members    []string // API addresses, which identify the boot
		regions    []bourse.Region
		candidates []string // candidates in gru
	}{
		{"nobody", nil, nil, nil, nil},
		{"ourselves, pending", group(life("me", "1", pending)), []string{"me1:1"}, []bourse.Region{"gru"}, []string{"me1:1"}},
		{"sorted by id", group(life("b", "1"), life("c", "1"), life("a", "1")), []string{"a1:1", "b1:1", "c1:1"}, []bourse.Region{"gru"}, []string{"a1:1", "b1:1", "c1:1"}},
		{"another one, pending", group(life("a", "1", pending)), nil, nil, nil},
		{"a later life", group(life("a", "1"), life("a", "2")), []string{"a2:1"}, []bourse.Region{"gru"}, []string{"a2:1"}},
		{"a worker without a tag", group(life("a", "1", tag(0)), life("b", "1")), []string{"b1:1"}, []bourse.Region{"gru"}, []string{"b1:1"}},
		{"a later boot without a tag", group(life("a", "1"), life("a", "2", tag(0))), []string{"a1:1"}, []bourse.Region{"gru"}, []string{"a1:1"}},
		{"a later boot, pending", group(life("a", "1"), life("a", "2", pending)), []string{"a1:1"}, []bourse.Region{"gru"}, []string{"a1:1"}},
		{"this server and a later boot", group(life("me", "1"), life("me", "2")), []string{"me1:1"}, []bourse.Region{"gru"}, []string{"me1:1"}},
		{"regions", group(life("a", "1", in("mad")), life("b", "1"), life("c", "1", in("ams"))), []string{"a1:1", "b1:1", "c1:1"}, []bourse.Region{"ams", "gru", "mad"}, []string{"b1:1"}},
		{"one that leaves", group(life("a", "1", leaving), life("b", "1")), []string{"a1:1", "b1:1"}, []bourse.Region{"gru"}, []string{"b1:1"}},
		{"a leaving worker's region", group(life("a", "1", leaving)), []string{"a1:1"}, []bourse.Region{"gru"}, nil},
		{"a broker", group(life("a", "1", broker)), []string{"a1:1"}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := build(tt.nodes, nodeName("me", "1"))
			if d := cmp.Diff(tt.members, addresses(s.members)); d != "" {
				t.Errorf("members (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.regions, s.regions); d != "" {
				t.Errorf("regions (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.candidates, addresses(s.byRegion["gru"])); d != "" {
				t.Errorf("candidates (-want +got):\n%s", d)
			}
		})
	}
}

// TestBuildTags checks that if workers have the same tag, the tag always leads to the worker
// that had it first.
func TestBuildTags(t *testing.T) {
	nodes := group(life("b", "1", tag(7)), life("a", "2", tag(7)), life("c", "1", tag(0)), life("d", "1", tag(9), broker))
	for range 20 { // map iteration order is random
		s := build(nodes, "")
		if len(s.byTag) != 1 || s.members[s.byTag[7]].ID != "b" {
			t.Fatalf("got %v, want only b with tag 7", s.byTag)
		}
	}
}

func TestRival(t *testing.T) {
	tests := []struct {
		name        string
		self, other node
		want        bool
	}{
		{"ourselves", life("a", "1"), life("a", "1"), false},
		{"another id", life("a", "2"), life("b", "1"), false},
		{"an earlier boot, both settled", life("a", "2"), life("a", "1"), true},
		{"a later boot, both settled", life("a", "1"), life("a", "2"), false},
		{"an earlier boot, both pending", life("a", "2", pending), life("a", "1", pending), true},
		{"a later boot, both pending", life("a", "1", pending), life("a", "2", pending), false},
		{"settled, with a clock that is ahead", life("a", "1", pending), life("a", "2"), true},
		{"pending, with a clock that is behind", life("a", "2"), life("a", "1", pending), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := rival(tt.self, tt.other); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if tt.self.name != tt.other.name && tt.self.member.ID == tt.other.member.ID && rival(tt.other, tt.self) == tt.want {
				t.Error("both servers would stay, or neither")
			}
		})
	}
}

// BenchmarkCandidates measures Candidates, which each order calls for its regions.
func BenchmarkCandidates(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint("workers=", n), func(b *testing.B) {
			nodes := map[string]node{}
			for i := range n {
				l := life(bourse.WorkerID(fmt.Sprintf("w%d", i)), "1")
				nodes[l.name] = l
			}
			m := &Members{}
			m.current.Store(build(nodes, ""))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if len(m.Candidates("gru")) != n {
						b.Error("some candidates are missing")
					}
				}
			})
		})
	}
}

// BenchmarkBuild measures build, which runs after each change to the list.
func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint("workers=", n), func(b *testing.B) {
			nodes := map[string]node{}
			for i := range n {
				l := life(bourse.WorkerID(fmt.Sprintf("w%d", i)), "1", tag(bourse.WorkerTag(i)))
				nodes[l.name] = l
			}
			b.ReportAllocs()
			for b.Loop() {
				build(nodes, "")
			}
		})
	}
}

// TestEarlierBootIsNoRival checks that a server that was killed and restarted at its address can join, although others
// may list its earlier boot for longer than checkRivals waits for a rival to disappear.
func TestEarlierBootIsNoRival(t *testing.T) {
	const here, elsewhere = "127.0.0.1:7946", "127.0.0.1:7947"
	self := node{name: "w1-2", boot: "2", gossip: here, proven: true, member: bourse.Member{ID: "w1", Role: bourse.RoleWorker}}
	earlier := self
	earlier.name, earlier.boot = "w1-1", "1"
	other := earlier
	other.gossip = elsewhere
	for _, tt := range []struct {
		of   node
		want int
	}{{earlier, 0}, {other, 1}} {
		m := &Members{name: self.name, gossip: here, memberList: memberList{self: self, nodes: map[string]node{self.name: self, tt.of.name: tt.of}}}
		if got := m.rivals(false); len(got) != tt.want {
			t.Errorf("%d rivals for one at %s, want %d", len(got), tt.of.gossip, tt.want)
		}
	}
}
