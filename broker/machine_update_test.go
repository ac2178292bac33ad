package broker_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestUpdateMachine(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	path := "/v1/apps/shop/machines/" + string(m.ID)
	rec := s.call(t, "POST", path, `{"config":`+strings.Replace(hostConfig, "{", `{"services":[{"internal_port":80,"autostop":"stop"}],"color":"red",`, 1)+
		`,"name":"web","region":"gru","current_version":"`+string(m.Instance)+`","skip_launch":true,"skip_service_registration":true,"lease_ttl":30}`,
		"fly-machine-lease-nonce", "n0nce")
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	got := decodeBody[machinesapi.Machine](t, rec.Body.Bytes())
	if got.InstanceID == m.Instance || got.State != bourse.StateStarted || got.Nonce == "" || len(got.Warnings) != 2 || len(rec.Header()[machinesapi.HeaderWarning]) != 2 {
		t.Errorf("the reply is %s", rec.Body)
	}
	asked := s.workers["w1"].updates[0]
	if asked.Config.Guest == nil || string(asked.Config.Rest) != `{"color":"red"}` {
		t.Errorf("the worker was sent config %+v", asked.Config)
	}
	asked.Config = bourse.Config{}
	want := fabric.UpdateRequest{
		Machine: m.ID, Nonce: "n0nce", Current: m.Instance, SkipLaunch: true, Cordoned: true, Name: "web", Region: "gru", LeaseTTL: 30, LeaseOwner: asked.LeaseOwner,
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("the worker received (-want +got):\n%s", diff)
	}
	read := decodeBody[machinesapi.Machine](t, s.call(t, "GET", path, "").Body.Bytes())
	if read.InstanceID != got.InstanceID {
		t.Errorf("read after the update: version %s, want %s", read.InstanceID, got.InstanceID)
	}
	versions := decodeBody[[]machinesapi.Version](t, s.call(t, "GET", path+"/versions", "").Body.Bytes())
	if len(versions) != 1 || versions[0].Version != got.InstanceID || versions[0].Config == nil {
		t.Errorf("versions %+v", versions)
	}
	if rec := s.call(t, "GET", strings.Replace(path, "shop", "default", 1)+"/versions", ""); rec.Code != http.StatusNotFound {
		t.Errorf("versions by another app: status %d, %s", rec.Code, rec.Body)
	}
}

// TestUpdateMachineRefused checks that an invalid update is rejected with the message that clients expect, and that it
// changes nothing.
func TestUpdateMachineRefused(t *testing.T) {
	s := start(t, quotas(`{"app":{"config_bytes":5000}}`))
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	path := "/v1/apps/shop/machines/" + string(m.ID)
	for name, c := range map[string]struct {
		path, body string
		status     int
		word       string
	}{
		"no config":          {path, `{}`, 400, "config is required"},
		"null config":        {path, `{"config":null}`, 400, "config is required"},
		"a list":             {path, `[]`, 400, ""},
		"unsupported field":  {path, `{"config":{"image":"nginx","guest":{"host_dedication_id":"x"}}}`, 400, "host_dedication_id"},
		"a wrong guest":      {path, `{"config":{"image":"host","init":{"exec":["a"]},"guest":{"cpus":-1}}}`, 400, "cpus"},
		"a check of nothing": {path, `{"config":{"image":"host","init":{"exec":["a"]},"checks":{"a":{"type":"pigeon"}}}}`, 400, "checks"},
		"an old version":     {path, `{"config":` + hostConfig + `,"current_version":"01HZZZZZZZZZZZZZZZZZZZZZZZ"}`, 409, "has version"},
		"secrets":            {path, `{"config":` + hostConfig + `,"min_secrets_version":1795405490958337}`, 412, "has not arrived"},
		"app quota exceeded": {path, `{"config":{"image":"host","init":{"exec":["a"]},"env":{"A":"` + strings.Repeat("x", 6000) + `"}}}`, 403, "may have 5000 bytes of config"},
		"another app's":      {strings.Replace(path, "shop", "default", 1), `{"config":` + hostConfig + `}`, 404, "machine not found"},
		"no machine":         {path[:len(path)-4] + "0000", `{"config":` + hostConfig + `}`, 404, "machine not found"},
		"an unknown machine": {"/v1/apps/shop/machines/x", `{"config":` + hostConfig + `}`, 404, "machine not found"},
	} {
		rec := s.call(t, "POST", c.path, c.body)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.word) {
			t.Errorf("%s: status %d, %s; want %d with %q", name, rec.Code, rec.Body, c.status, c.word)
		}
	}
	s.workers["w1"].full = true
	rec := s.call(t, "POST", path, `{"config":`+hostConfig+`}`)
	if body := rec.Body.String(); rec.Code != http.StatusConflict || !strings.Contains(body, "could not reserve resource for machine: insufficient memory available to fulfill request") {
		t.Errorf("a full host: status %d, %s", rec.Code, body)
	}
}

func FuzzUpdate(f *testing.F) {
	fuzzBody(f, "POST", "", func(t *testing.T, s *setup) {
		u := s.workers["w1"].updates[0]
		if err := u.Config.Guest.Takes(1).Validate(); err != nil || u.Config.Normalize() != nil {
			t.Fatalf("the worker received %+v", u)
		}
	}, `{"config":`+hostConfig+`}`, `{"config":{"image":"nginx","size":"performance-2x"},"region":"gru","lease_ttl":-5,"current_version":"x"}`)
}
