package worker

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/admission"
)

// certificateOf is the TLS state of a connection on which a server has proven
// itself.
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

// TestExportNeedsAGrant: what a volume or snapshot holds, keys included, is read
// by the worker to which a broker had it granted, and by no other; a grant is good
// for nothing else, ends, and outlives the daemon that made it.
func TestExportNeedsAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vols := newMemVolumes()
		h := newHost(t, withVolumes(vols))
		defer func() { h.crash() }()
		v, other := h.placeVolume(), h.placeVolume()
		vols.write(v.ID, "0123456789")
		vols.write(other.ID, "0123456789")
		snap, err := h.snapshot(t.Context(), v.ID)
		if err != nil {
			t.Fatal(err)
		}
		ca, err := admission.NewCA("test", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		app := bourse.App{Name: v.App, ID: v.AppID, CreatedAt: v.CreatedAt.Add(-time.Hour)}
		grant := func(id string) string {
			g, err := h.grant(t.Context(), id, &fabric.GrantRequest{To: "w2", App: app}, time.Now())
			if err != nil {
				t.Fatalf("grant %s: %v", id, err)
			}
			return g
		}
		read := func(id, grant string, as *tls.ConnectionState) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/worker/exports/"+id+"?grant="+url.QueryEscape(grant), nil)
			r.TLS = as
			w := httptest.NewRecorder()
			h.Handler().ServeHTTP(w, r)
			return w.Code
		}
		w2 := certificateOf(t, ca, "w2", bourse.RoleWorker)
		good := grant(string(v.ID))
		for _, tt := range []struct {
			name, id, grant string
			as              *tls.ConnectionState
			want            int
		}{
			{"its own", string(v.ID), good, w2, http.StatusOK},
			{"of a snapshot", string(snap.ID), grant(string(snap.ID)), w2, http.StatusOK},
			{"none", string(v.ID), "", w2, http.StatusForbidden},
			{"none, of nothing", "nothing", "", w2, http.StatusForbidden},
			{"another volume's", string(other.ID), good, w2, http.StatusForbidden},
			{"its volume's, for the snapshot", string(snap.ID), good, w2, http.StatusForbidden},
			{"another worker's", string(v.ID), good, certificateOf(t, ca, "w3", bourse.RoleWorker), http.StatusForbidden},
			{"a broker of the worker's name", string(v.ID), good, certificateOf(t, ca, "w2", bourse.RoleBroker), http.StatusForbidden},
			{"a connection without a certificate", string(v.ID), good, &tls.ConnectionState{}, http.StatusForbidden},
			{"in another's name", string(v.ID), strings.Replace(good, "w2.", "w3.", 1), certificateOf(t, ca, "w3", bourse.RoleWorker), http.StatusForbidden},
			{"made up", string(v.ID), "w2.zzzzzz.AAAA", w2, http.StatusForbidden},
		} {
			if got := read(tt.id, tt.grant, tt.as); got != tt.want {
				t.Errorf("%s: status %d, want %d", tt.name, got, tt.want)
			}
			if tt.want == http.StatusOK {
				continue
			}
			for _, r := range []*http.Request{
				httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/worker/exports/"+tt.id+"/chunk?n=0&grant="+url.QueryEscape(tt.grant), nil),
				httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/worker/exports/"+tt.id+"?grant="+url.QueryEscape(tt.grant), nil),
			} {
				r.TLS = tt.as
				w := httptest.NewRecorder()
				h.Handler().ServeHTTP(w, r)
				if w.Code != http.StatusForbidden {
					t.Errorf("%s: %s %s: status %d", tt.name, r.Method, r.URL.Path, w.Code)
				}
			}
		}
		_, err = h.grant(t.Context(), string(v.ID), &fabric.GrantRequest{To: "w2", App: bourse.App{Name: "others", ID: "others"}}, time.Now())
		if bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("another app's volume is granted: %v", err)
		}
		h.crash()
		h.start(nil)
		if got := read(string(v.ID), good, w2); got != http.StatusOK {
			t.Errorf("after a restart of the source: status %d", got)
		}
		time.Sleep(grantLife + time.Minute) // of the bubble
		if got := read(string(v.ID), good, w2); got != http.StatusForbidden {
			t.Errorf("after a day: status %d", got)
		}
	})
}

// FuzzGrant: no grant that was not made is one, whatever it looks like.
func FuzzGrant(f *testing.F) {
	key := make([]byte, grantKeySize)
	f.Add("w2.t5z3k0.AAAA", "vol_1")
	f.Add("..", "")
	f.Add("w2."+strings.Repeat("z", 40)+".", "vol_1")
	w := &Worker{}
	w.volumes.grants.key = key
	f.Fuzz(func(t *testing.T, grant, id string) {
		r := &http.Request{URL: &url.URL{RawQuery: url.Values{"grant": {grant}}.Encode()}}
		r.SetPathValue("volume", id)
		if err := w.granted(r); bourse.CodeOf(err) != bourse.CodeForbidden {
			t.Errorf("got %v", err)
		}
	})
}
