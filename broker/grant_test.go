package broker_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
)

// sources is a set of workers that grant access to their volumes and snapshots, and receive claims.
type sources struct {
	members map[bourse.WorkerTag]bourse.Member
	refuses bool
	asked   []string        // requests for grants, as "source reader id"
	claims  []*bourse.Claim // received claims
}

func (s *sources) ByTag(tag bourse.WorkerTag) (bourse.Member, bool) {
	m, ok := s.members[tag]
	return m, ok
}

// worker returns the handler of one worker.
func (s *sources) worker(id bourse.WorkerID) http.Handler {
	mux := http.NewServeMux()
	fabric.VolumeGrant.Handle(mux, func(_ context.Context, req fabric.GrantRequest) (string, error) {
		s.asked = append(s.asked, string(id)+" "+string(req.To)+" "+req.ID)
		if s.refuses || req.App.Name != "web" {
			return "", bourse.Errorf(bourse.CodeNotFound, "no such volume")
		}
		return "granted by " + string(id), nil
	})
	fabric.OrderClaim.Handle(mux, func(_ context.Context, c bourse.Claim) (fabric.ClaimReply, error) {
		s.claims = append(s.claims, &c)
		return fabric.ClaimReply{Fill: &bourse.Fill{}}, nil
	})
	return mux
}

// TestForksAreGranted checks that, before a broker claims a fork or a restoration on a worker, the source's worker
// grants that worker access to the source. Without the grant, the broker does not send the claim.
func TestForksAreGranted(t *testing.T) {
	source := bourse.Member{ID: "w1", Role: bourse.RoleWorker, Tag: 7}
	to := bourse.Member{ID: "w2", Role: bourse.RoleWorker, Tag: 8}
	volume, snap := bourse.NewVolumeID(7), bourse.NewSnapshotID(7)
	for _, tt := range []struct {
		name    string
		spec    bourse.VolumeOrder
		to      bourse.Member
		known   bool
		refuses bool
		asked   string
		claimed bool
	}{
		{"a new volume", bourse.VolumeOrder{}, to, true, false, "", true},
		{"a fork", bourse.VolumeOrder{Source: volume}, to, true, false, "w1 w2 " + string(volume), true},
		{"a restoration", bourse.VolumeOrder{Snapshot: snap}, to, true, false, "w1 w2 " + string(snap), true},
		{"a fork on its source's worker", bourse.VolumeOrder{Source: volume}, source, true, false, "", true},
		{"a source that refuses", bourse.VolumeOrder{Source: volume}, to, true, true, "w1 w2 " + string(volume), false},
		{"an absent source", bourse.VolumeOrder{Source: volume}, to, false, false, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &sources{members: map[bourse.WorkerTag]bourse.Member{}, refuses: tt.refuses}
			if tt.known {
				s.members[source.Tag] = source
			}
			claim := &bourse.Claim{Order: bourse.Order{ID: bourse.NewOrderID(), App: bourse.App{Name: "web"}, Volume: &tt.spec}}
			_, _, err := fabric.GrantingTrader{Trader: fabric.Trader{Fabric: fabrictest.Memory(s.worker)}, Directory: s}.Claim(t.Context(), tt.to, claim)
			if (err == nil) != tt.claimed || (len(s.claims) == 1) != tt.claimed {
				t.Fatalf("%d claims were sent: %v", len(s.claims), err)
			}
			if err != nil && bourse.CodeOf(err) != bourse.CodeUnavailable {
				t.Errorf("got %v, want an error whose code means that nothing was claimed", err)
			}
			if asked := append(s.asked, "")[0]; asked != tt.asked {
				t.Errorf("asked %q, want %q", asked, tt.asked)
			}
			if tt.claimed && (s.claims[0].Order.Volume.Grant != "") != (tt.asked != "") {
				t.Errorf("claimed with grant %q", s.claims[0].Order.Volume.Grant)
			}
			if claim.Order.Volume.Grant != "" {
				t.Error("the shared order contains the grant")
			}
		})
	}
}
