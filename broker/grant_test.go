package broker_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/fabric"
)

// sources are workers that grant what they have, and take claims.
type sources struct {
	members map[bourse.WorkerTag]bourse.Member
	refuses bool
	asked   []string        // "source reader id"
	claims  []*bourse.Claim // that arrived
}

func (s *sources) ByTag(tag bourse.WorkerTag) (bourse.Member, bool) {
	m, ok := s.members[tag]
	return m, ok
}

func (*sources) Ask(context.Context, []bourse.Member, *bourse.Order, func(bourse.Quote)) {}

// Call implements fabric.Fabric.
func (s *sources) Call(_ context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	mux := http.NewServeMux()
	mux.HandleFunc(fabric.PathGrant, func(w http.ResponseWriter, r *http.Request) {
		var req fabric.GrantRequest
		if err := fabric.ReadBody(w, r, &req); err != nil || req.App.Name != "web" {
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		s.asked = append(s.asked, string(to.ID)+" "+string(req.To)+" "+r.PathValue("volume"))
		if s.refuses {
			fabric.WriteFailure(w, bourse.Errorf(bourse.CodeNotFound, "no such volume"))
			return
		}
		fabric.WriteBody(w, fabric.Grant{Grant: "granted by " + string(to.ID)})
	})
	mux.HandleFunc(fabric.PathClaim, func(w http.ResponseWriter, r *http.Request) {
		var c bourse.Claim
		if err := fabric.ReadBody(w, r, &c); err != nil {
			fabric.WriteFailure(w, err)
			return
		}
		s.claims = append(s.claims, &c)
		fabric.WriteBody(w, fabric.ClaimReply{Fill: &bourse.Fill{}})
	})
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, req)
	return w.Result(), nil
}

// TestForksAreGranted: a broker has a fork or a restoration granted to the worker
// that it claims, by the one that has the source, and claims nothing without.
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
		{"a fork where its source is", bourse.VolumeOrder{Source: volume}, source, true, false, "", true},
		{"a source that says no", bourse.VolumeOrder{Source: volume}, to, true, true, "w1 w2 " + string(volume), false},
		{"a source that is away", bourse.VolumeOrder{Source: volume}, to, false, false, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &sources{members: map[bourse.WorkerTag]bourse.Member{}, refuses: tt.refuses}
			if tt.known {
				s.members[source.Tag] = source
			}
			claim := &bourse.Claim{Order: bourse.Order{ID: bourse.NewOrderID(), App: bourse.App{Name: "web"}, Volume: &tt.spec}}
			_, _, err := broker.Granting{Client: fabric.NewClient(s), Directory: s}.Claim(t.Context(), tt.to, claim)
			if (err == nil) != tt.claimed || (len(s.claims) == 1) != tt.claimed {
				t.Fatalf("%d claims were sent: %v", len(s.claims), err)
			}
			if err != nil && bourse.CodeOf(err) != bourse.CodeUnavailable {
				t.Errorf("got %v, want it known that nothing was claimed", err)
			}
			if asked := append(s.asked, "")[0]; asked != tt.asked {
				t.Errorf("asked %q, want %q", asked, tt.asked)
			}
			if tt.claimed && (s.claims[0].Order.Volume.Grant != "") != (tt.asked != "") {
				t.Errorf("claimed with grant %q", s.claims[0].Order.Volume.Grant)
			}
			if claim.Order.Volume.Grant != "" {
				t.Error("the order of everybody has the grant in it")
			}
		})
	}
}
