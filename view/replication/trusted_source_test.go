package replication

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

// certified returns a Replicator of worker w1. If certified is set, its Caller verifies other
// servers by their certificates.
func certified(t *testing.T, certified bool, members ...bourse.Member) *Replicator {
	t.Helper()
	v, err := view.Open(view.Config{Site: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return New(Config{
		View: v, Self: bourse.Member{ID: "w1", Role: bourse.RoleWorker}, Certified: certified,
		Members: func() []bourse.Member { return members },
	})
}

// TestTrustedSourcesOfAStream checks that, in a cluster with certificates, a snapshot is
// requested from the site itself or a broker, never from another worker.
func TestTrustedSourcesOfAStream(t *testing.T) {
	owner, other, broker := bourse.Member{ID: "w2", Role: bourse.RoleWorker}, bourse.Member{ID: "w3", Role: bourse.RoleWorker}, bourse.Member{ID: "b1", Role: bourse.RoleBroker}
	of := wire.Stream{Site: "w2", Epoch: 1}
	for name, x := range map[string]struct {
		certified bool
		members   []bourse.Member
		has       bourse.Member
		want      bourse.WorkerID // "" means nobody
	}{
		"a broker has it":                        {true, []bourse.Member{owner, other, broker}, broker, "b1"},
		"the site":                               {true, []bourse.Member{owner, other, broker}, owner, "w2"},
		"another worker":                         {true, []bourse.Member{owner, other, broker}, other, "w2"},
		"another worker, without the site":       {true, []bourse.Member{other, broker}, other, "b1"},
		"another worker, alone":                  {true, []bourse.Member{other}, other, ""},
		"without certificates, anyone":           {false, []bourse.Member{other}, other, "w3"},
		"without certificates, the first member": {false, []bourse.Member{owner, other, broker}, other, "w3"},
	} {
		got, err := certified(t, x.certified, x.members...).trustedSource(x.has, of)
		if got.ID != x.want || (err == nil) != (x.want != "") || err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("%s: source %s, %v, want %q", name, got.ID, err, x.want)
		}
	}
}

// TestWorkerCannotForceNewEpoch checks that a broker that claims to be ahead in our own stream
// is believed, but a worker must provide a transaction that we have signed.
func TestWorkerCannotForceNewEpoch(t *testing.T) {
	for role, believed := range map[bourse.Role]bool{bourse.RoleWorker: false, bourse.RoleBroker: true} {
		r := certified(t, true)
		own := r.view.Self()
		own.Seq += 1000
		c := &comparison{with: bourse.Member{ID: "x1", Role: role}, heads: map[wire.Stream]view.Head{own.Stream: {Position: own}}}
		lacking, _, _ := r.classify(c, time.Now())
		if (len(r.renewals) == 1) != believed || (len(lacking) == 1) == believed {
			t.Errorf("claimed by a %s: %d new epochs, %d streams to be pulled", role, len(r.renewals), len(lacking))
		}
	}
}
