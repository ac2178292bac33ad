package broker_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestLeases(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	path := "/v1/apps/shop/machines/" + string(m.ID)
	if rec := s.call(t, "GET", path+"/lease", ""); rec.Code != 404 || !strings.Contains(rec.Body.String(), ": lease not found") {
		t.Errorf("no lease yet: %d %s", rec.Code, rec.Body)
	}
	rec := s.call(t, "POST", path+"/lease?ttl=120", "")
	env := decodeBody[machinesapi.LeaseEnvelope](t, rec.Body.Bytes())
	if rec.Code != http.StatusCreated || env.Status != "success" || env.Data.Nonce == "" || env.Data.Version != m.Instance || env.Data.Owner != "local" {
		t.Fatalf("acquire: %d %+v", rec.Code, env)
	}
	if left := time.Until(time.Unix(env.Data.ExpiresAt, 0)); left < 110*time.Second || left > 121*time.Second {
		t.Errorf("it expires in %s, want about 120 s", left)
	}

	rec = s.call(t, "POST", path+"/lease", `{"ttl":30}`)
	if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != 409 || !strings.Contains(got.Error, "lease currently held by local") || got.Code != bourse.CodeConflict {
		t.Errorf("a second lease: %d %+v", rec.Code, got)
	}
	again := decodeBody[machinesapi.LeaseEnvelope](t, s.call(t, "POST", path+"/lease?ttl=30", "", "fly-machine-lease-nonce", env.Data.Nonce).Body.Bytes())
	if again.Data.Nonce != env.Data.Nonce {
		t.Errorf("extended under another nonce: %q", again.Data.Nonce)
	}
	if got := decodeBody[machinesapi.LeaseEnvelope](t, s.call(t, "GET", path+"/lease", "").Body.Bytes()); got.Data.Nonce != env.Data.Nonce {
		t.Errorf("GET lease: %+v", got)
	}

	for _, verb := range []string{"start", "stop", "restart", "cordon", "uncordon"} {
		if rec := s.call(t, "POST", path+"/"+verb, ""); rec.Code != 409 || !strings.Contains(rec.Body.String(), "lease currently held by") {
			t.Errorf("%s without the nonce: %d %s", verb, rec.Code, rec.Body)
		}
		if rec := s.call(t, "POST", path+"/"+verb, "", "fly-machine-lease-nonce", env.Data.Nonce); rec.Code != 200 {
			t.Errorf("%s with the nonce: %d %s", verb, rec.Code, rec.Body)
		}
	}
	if rec := s.call(t, "POST", path+"/metadata/k", `{"value":"v"}`); rec.Code != 204 {
		t.Errorf("metadata without the nonce: %d %s", rec.Code, rec.Body)
	}

	rec = s.call(t, "DELETE", path+"/lease", "", "fly-machine-lease-nonce", env.Data.Nonce)
	if rec.Code != 200 || rec.Body.String() != `{"status":"success","data":{"ok":true}}`+"\n" {
		t.Errorf("release: %d %s", rec.Code, rec.Body)
	}
	if rec := s.call(t, "DELETE", path+"/lease", "", "fly-machine-lease-nonce", env.Data.Nonce); rec.Code != 404 || !strings.Contains(rec.Body.String(), ": lease not found") {
		t.Errorf("release again: %d %s", rec.Code, rec.Body)
	}
}

func TestDefaultLeaseIsAMinute(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	env := decodeBody[machinesapi.LeaseEnvelope](t, s.call(t, "POST", "/v1/apps/shop/machines/"+string(m.ID)+"/lease", "").Body.Bytes())
	if left := time.Until(time.Unix(env.Data.ExpiresAt, 0)); left < 50*time.Second || left > 61*time.Second {
		t.Errorf("it expires in %s", left)
	}
}

// TestReleaseAfterDestroy releases the lease of a machine that has just been destroyed, as flyctl
// does. The reply must be 200 or 404, not a server error.
func TestReleaseAfterDestroy(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStopped)
	path := "/v1/apps/shop/machines/" + string(m.ID)
	env := decodeBody[machinesapi.LeaseEnvelope](t, s.call(t, "POST", path+"/lease", "").Body.Bytes())
	s.call(t, "DELETE", path, "", "fly-machine-lease-nonce", env.Data.Nonce)
	if rec := s.call(t, "DELETE", path+"/lease", "", "fly-machine-lease-nonce", env.Data.Nonce); rec.Code != 404 {
		t.Errorf("status %d: %s", rec.Code, rec.Body)
	}
	if rec := s.call(t, "GET", path+"/lease", ""); rec.Code != 404 {
		t.Errorf("GET: status %d: %s", rec.Code, rec.Body)
	}
}
