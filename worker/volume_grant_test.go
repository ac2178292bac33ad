package worker

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

// certificateOf returns the TLS state of a connection on which a server has
// authenticated with a certificate.
func certificateOf(t *testing.T, ca *admission.CA, id bourse.WorkerID, role bourse.Role) *tls.ConnectionState {
	t.Helper()
	pair, err := ca.Issue(admission.Identity{ID: id, Role: role}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
}

// TestExportNeedsAGrant checks that only a worker to which a broker has granted a
// volume or snapshot can read it. A grant cannot be used for anything else. It expires,
// and it remains valid when the daemon that issued it restarts.
func TestExportNeedsAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vols := volumetest.NewHost()
		h := newHost(t, withVolumes(vols))
		defer func() { h.crash() }()
		v, other := h.placeVolume(), h.placeVolume()
		vols.Write(v.ID, "0123456789")
		vols.Write(other.ID, "0123456789")
		snap, err := h.volumes.Snapshot(t.Context(), v.ID)
		if err != nil {
			t.Fatal(err)
		}
		ca, err := admission.NewCA("test", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		app := bourse.App{Name: v.App, ID: v.AppID, CreatedAt: v.CreatedAt.Add(-time.Hour)}
		grant := func(id string) string {
			g, err := h.volumes.Grant(t.Context(), id, &fabric.GrantRequest{To: "w2", App: app}, time.Now())
			if err != nil {
				t.Fatalf("grant %s: %v", id, err)
			}
			return g
		}
		from := func(as *tls.ConnectionState) fabric.Fabric {
			return fabrictest.Serving(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.TLS = as
				h.Handler().ServeHTTP(w, r)
			}))
		}
		read := func(id, grant string, as *tls.ConnectionState) bourse.Code {
			_, err := readExport(t, from(as), fabric.Export{ID: id, Grant: grant})
			return bourse.CodeOf(err)
		}
		w2 := certificateOf(t, ca, "w2", bourse.RoleWorker)
		good := grant(string(v.ID))
		for _, tt := range []struct {
			name, id, grant string
			as              *tls.ConnectionState
			want            bourse.Code
		}{
			{"its own", string(v.ID), good, w2, ""},
			{"of a snapshot", string(snap.ID), grant(string(snap.ID)), w2, ""},
			{"none", string(v.ID), "", w2, bourse.CodeForbidden},
			{"none, of nothing", "nothing", "", w2, bourse.CodeForbidden},
			{"another volume's", string(other.ID), good, w2, bourse.CodeForbidden},
			{"the volume's grant, for the snapshot", string(snap.ID), good, w2, bourse.CodeForbidden},
			{"another worker's", string(v.ID), good, certificateOf(t, ca, "w3", bourse.RoleWorker), bourse.CodeForbidden},
			{"a broker with the worker's name", string(v.ID), good, certificateOf(t, ca, "w2", bourse.RoleBroker), bourse.CodeForbidden},
			{"a connection without a certificate", string(v.ID), good, &tls.ConnectionState{}, bourse.CodeForbidden},
			{"in another's name", string(v.ID), strings.Replace(good, "w2.", "w3.", 1), certificateOf(t, ca, "w3", bourse.RoleWorker), bourse.CodeForbidden},
			{"made up", string(v.ID), "w2.zzzzzz.AAAA", w2, bourse.CodeForbidden},
		} {
			if got := read(tt.id, tt.grant, tt.as); got != tt.want {
				t.Errorf("%s: code %q, want %q", tt.name, got, tt.want)
			}
		}
		_, err = h.volumes.Grant(t.Context(), string(v.ID), &fabric.GrantRequest{To: "w2", App: bourse.App{Name: "others", ID: "others"}}, time.Now())
		if bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("grant of another app's volume: %v", err)
		}
		h.crash()
		h.start(nil)
		if got := read(string(v.ID), good, w2); got != "" {
			t.Errorf("after a restart of the source: code %q", got)
		}
		time.Sleep(24*time.Hour + time.Minute) // virtual time
		if got := read(string(v.ID), good, w2); got != bourse.CodeForbidden {
			t.Errorf("after a day: code %q", got)
		}
	})
}
