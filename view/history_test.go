package view

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// owner is a site of a random history, with a model of its rows.
type owner struct {
	*member
	owns map[string]string // the app that each of its volumes belongs to, by the volume's key
	now  atomic.Int64      // its clock, in milliseconds since 1970
}

// history drives several owners at random.
type history struct {
	t      *rapid.T
	owners []*owner
}

func newHistory(t *testing.T, rt *rapid.T, n int) *history {
	h := &history{t: rt}
	for i := range n {
		o := &owner{owns: map[string]string{}}
		o.now.Store(1_700_000_000_000 + 1000*rapid.Int64Range(-120, 120).Draw(rt, "skew"))
		o.member = startMember(t, Config{Site: bourse.WorkerID(fmt.Sprint("w", i)), Now: func() time.Time { return time.UnixMilli(o.now.Load()) }})
		rt.Cleanup(o.end)
		h.owners = append(h.owners, o)
	}
	return h
}

var historyKeys = rapid.SampledFrom([]string{"k1", "k2", "k3"})

func (h *history) step() {
	t := h.t
	o := rapid.SampledFrom(h.owners).Draw(t, "owner")
	o.now.Add(rapid.Int64Range(0, 2).Draw(t, "ms"))
	key := historyKeys.Draw(t, "key")
	text := rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "text")
	switch rapid.IntRange(0, 9).Draw(t, "op") {
	case 0, 1, 2:
		o.owns[key] = text
		o.publish(wire.Row{Table: wire.TableVolumes, Key: key, Columns: map[string]wire.Value{"app": text, "name": key}})
	case 3:
		delete(o.owns, key)
		o.publish(wire.Row{Table: wire.TableVolumes, Key: key, Deleted: true})
	case 4:
		o.publish(secret(key, text, 0), secret("other-"+key, text, 0))
	case 5:
		o.publish(wire.Row{Table: wire.TableSecrets, Key: key, Deleted: true})
	case 6:
		h.app(o, key)
	case 7, 8:
		from := rapid.SampledFrom(h.owners).Draw(t, "from")
		if from != o {
			o.take(from.told...)
		}
	case 9:
		h.renew(o)
	}
}

func (h *history) app(o *owner, name string) {
	row := wire.Row{Table: wire.TableApps, Key: name, Columns: map[string]wire.Value{
		"id": rapid.SampledFrom([]string{"i", "j"}).Draw(h.t, "id"), "org": string(o.config.Site),
		"generation": rapid.Int64Range(0, 1).Draw(h.t, "generation"), "created_at": rapid.Int64Range(1, 3).Draw(h.t, "created"),
	}}
	if rapid.Bool().Draw(h.t, "deleted") {
		row.Columns["deleted_at"] = int64(7)
	}
	o.publish(row)
}

// renew makes an owner lose its file and publish everything again.
func (h *history) renew(o *owner) {
	if err := o.Renew(h.t.Context(), o.Self().Stream); err != nil {
		h.t.Fatal(err)
	}
	var rows []wire.Row
	for _, key := range slices.Sorted(maps.Keys(o.owns)) {
		rows = append(rows, wire.Row{Table: wire.TableVolumes, Key: key, Columns: map[string]wire.Value{"app": o.owns[key], "name": key}})
	}
	if _, err := o.Republish(h.t.Context(), []string{wire.TableVolumes}, rows); err != nil {
		h.t.Fatal(err)
	}
}

// deliver sends the owners' transactions to a member, out of order, twice, and occasionally as a snapshot from a
// member that has them.
func (h *history) deliver(m *member, peers []*member) {
	var all [][]byte
	for _, o := range h.owners {
		all = append(all, o.told...)
	}
	for range rapid.IntRange(0, 2*len(all)).Draw(h.t, "deliveries") {
		if rapid.IntRange(0, 9).Draw(h.t, "how") == 0 {
			h.snapshot(m, rapid.SampledFrom(peers).Draw(h.t, "peer"))
			continue
		}
		if _, err := m.Apply(rapid.SampledFrom(all).Draw(h.t, "transaction")); err != nil {
			h.t.Fatal(err)
		}
	}
	m.flush()
}

func (h *history) snapshot(m, peer *member) {
	heads := peer.Digest().Heads
	var b bytes.Buffer
	if len(heads) == 0 || rapid.IntRange(0, 3).Draw(h.t, "of") == 0 {
		if err := peer.SharedSnapshot(h.t.Context(), &b); err != nil {
			h.t.Fatal(err)
		}
		if err := m.RestoreShared(h.t.Context(), &b); err != nil {
			h.t.Fatal(err)
		}
		return
	}
	s := rapid.SampledFrom(heads).Draw(h.t, "stream").Stream
	if err := peer.Snapshot(h.t.Context(), s, &b); err != nil {
		h.t.Fatal(err)
	}
	err := m.Restore(h.t.Context(), s, &b)
	if ours := m.Self().Stream; err != nil && (s.Site != ours.Site || s.Epoch < ours.Epoch) {
		h.t.Fatal(err)
	}
}

// complete sends everything to a member, in order. If a site has started too many epochs, the member no longer accepts
// the first ones. Their shared rows arrive when the members compare their shared rows.
func (h *history) complete(m *member) {
	for _, o := range h.owners {
		if o.member == m {
			continue
		}
		m.take(o.told...)
		if o.epochs() <= maxEpochs {
			continue
		}
		var b bytes.Buffer
		if err := o.SharedSnapshot(h.t.Context(), &b); err != nil {
			h.t.Fatal(err)
		}
		if err := m.RestoreShared(h.t.Context(), &b); err != nil {
			h.t.Fatal(err)
		}
	}
}

// epochs returns the number of epochs in which an owner has written transactions.
func (o *owner) epochs() int {
	seen := map[uint64]bool{}
	for _, encoded := range o.told {
		if p, err := wire.DecodePosition(encoded); err == nil {
			seen[p.Epoch] = true
		}
	}
	return len(seen)
}

func TestMembersConverge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHistory(t, rt, 3)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			h.step()
		}
		members := []*member{}
		for _, o := range h.owners {
			members = append(members, o.member)
		}
		for i := range 2 {
			m := startMember(t, Config{
				Site: bourse.WorkerID(fmt.Sprint("reader", i)),
				Now:  func() time.Time { return time.UnixMilli(1_700_000_000_000) },
			})
			rt.Cleanup(m.end)
			h.deliver(m, members)
			members = append(members, m)
		}
		for _, m := range members {
			h.complete(m)
		}
		h.compare(rt, members)
	})
}

func (h *history) compare(rt *rapid.T, members []*member) {
	first := members[0]
	for _, m := range members {
		if err := m.verify(rt.Context()); err != nil {
			rt.Errorf("%s: %v", m.config.Site, err)
		}
		if d := cmp.Diff(first.Digest(), m.Digest()); d != "" {
			rt.Errorf("%s and %s differ:\n%s", first.config.Site, m.config.Site, d)
		}
		if d := cmp.Diff(first.dump(), m.dump()); d != "" {
			rt.Errorf("rows of %s and %s differ:\n%s", first.config.Site, m.config.Site, d)
		}
		if a, b := first.Health().Tables, m.Health().Tables; !slices.Equal(a, b) {
			rt.Errorf("checksums of %s and %s differ: %v and %v", first.config.Site, m.config.Site, a, b)
		}
	}
	for _, o := range h.owners {
		got := map[string]string{}
		for _, key := range []string{"k1", "k2", "k3"} {
			row, ok := first.row(wire.TableVolumes, o.config.Site, key)
			if ok {
				got[key] = wire.TextOf(row.Columns.Get("app"))
			}
		}
		if !maps.Equal(got, o.owns) {
			rt.Errorf("%s: the others have rows %v, want %v", o.config.Site, got, o.owns)
		}
	}
}
