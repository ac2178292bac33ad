package broker_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestSpellings checks that all encodings of the same request that clients use are accepted.
func TestSpellings(t *testing.T) {
	config := func(more string) string {
		return `{"config":{"image":"host","init":{"exec":["true"]},` + more + `}}`
	}
	for _, c := range []struct {
		path, body string // relative to a machine of app "shop", unless it begins with "/v1"
		want       int
	}{
		{"/stop", `{"timeout":"5s"}`, 200},
		{"/stop", `{"timeout":5000000000}`, 200},
		{"/stop", `{"id":"x","timeout":"0s","signal":""}`, 200},
		{"/stop", `{"timeout":null,"signal":null}`, 200},
		{"/stop", `{"signal":"SIGTERM","timeout":1000000000}`, 200},
		{"/stop", `{"signal":15}`, 200},
		{"/stop", `{"timeout":true}`, 400},
		{"/stop", `{"timeout":"5"}`, 400},
		{"/stop", `{"timeout":-1}`, 400},
		{"/signal", `{"signal":9}`, 200},
		{"/signal", `{"signal":"SIGKILL"}`, 200},
		{"/signal", `{"signal":"9"}`, 200},
		{"/signal", `{"signal":9.5}`, 400},
		{"/signal", `{"signal":0}`, 400},
		{"/signal", `{"signal":9007199254740993}`, 400},
		{"/signal", `{"signal":["SIGKILL"]}`, 400},
		{"/restart?timeout=5&force_stop=true", ``, 200},
		{"/restart?timeout=5s&force_stop=0&signal=SIGTERM", ``, 200},
		{"/restart?timeout=5x", ``, 400},
		{"/restart?force_stop=maybe", ``, 400},
		{"/lease?ttl=30", ``, 201},
		{"/lease/?ttl=30", ``, 201}, // the Terraform provider sends this
		{"/lease", `{"ttl":30}`, 201},
		{"/lease", `{"ttl":"30"}`, 400},
		{"/v1/apps/shop/machines", config(`"stop_config":{"timeout":"5s","signal":"SIGTERM"}`), 200},
		{"/v1/apps/shop/machines", config(`"stop_config":{"timeout":5000000000,"signal":15}`), 200},
		{"/v1/apps/shop/machines", config(`"services":[{"protocol":"tcp","internal_port":80,"autostop":"off","autostart":true,"force_instance_key":null}]`), 200},
		{"/v1/apps/shop/machines", config(`"services":[{"protocol":"tcp","internal_port":80,"autostop":true}]`), 200},
		{"/v1/apps/shop/machines", config(`"services":[{"protocol":"tcp","internal_port":80,"autostop":"suspend"}]`), 200},
		{"/v1/apps/shop/machines", config(`"services":[{"protocol":"tcp","internal_port":80,"autostart":"true"}]`), 400},
		{"/v1/apps/shop/machines", config(`"checks":{"up":{"type":"tcp","port":80,"interval":"15s","timeout":2000000000}}`), 200},
		{"/v1/apps/shop/machines", config(`"auto_destroy":"true"`), 400},
		{"/v1/apps/shop/machines", config(`"auto_destroy":false,"auto_destroy":true`), 200},
		{"/v1/apps/shop/machines", config(`"env":{"A":"` + "\xff\xfe" + `"}`), 400},
		{"/v1/apps/shop/machines", config(`"metadata":{"` + "\xff" + `":"b"}`), 400},
		{"/v1/apps/shop/machines", `{"name":"` + "a\xff" + `","config":` + hostConfig + `}`, 400},
	} {
		s := start(t)
		path, m := c.path, s.machine(t, "w1", "web", bourse.StateStarted)
		if !strings.HasPrefix(path, "/v1") {
			path = "/v1/apps/shop/machines/" + string(m.ID) + path
		}
		if rec := s.call(t, "POST", path, c.body); rec.Code != c.want {
			t.Errorf("POST %s %q: status %d, want %d: %s", c.path, c.body, rec.Code, c.want, rec.Body)
		}
	}
}

// TestIDsOfAnotherApp checks that another app's objects are neither found nor affected under an app's path, whatever
// the request.
func TestIDsOfAnotherApp(t *testing.T) {
	s := start(t, withTokens)
	s.app(t, "shop", "acme")
	zoo := s.app(t, "zoo", "zoological")
	lion := s.workers["w2"].add(bourse.Order{ID: bourse.NewOrderID(), App: zoo, Name: "lion"}, bourse.StateStarted)
	volume := s.workers["w2"].addVolume(bourse.Order{ID: bourse.NewOrderID(), App: zoo, Volume: &bourse.VolumeOrder{Name: "den", SizeGB: 1}})
	token := []string{"Authorization", "Bearer acme"}
	for _, call := range []string{
		"GET ", "POST ", "GET /versions", "DELETE ?force=true", "POST /start", "POST /stop", "POST /restart", "POST /signal", "POST /cordon", "POST /uncordon", "POST /exec",
		"GET /wait", "GET /events", "GET /logs", "GET /usage", "GET /lease", "POST /lease", "DELETE /lease", "GET /metadata", "PATCH /metadata",
		"GET /metadata/a", "POST /metadata/a", "DELETE /metadata/a",
	} {
		method, path, _ := strings.Cut(call, " ")
		rec := s.call(t, method, "/v1/apps/shop/machines/"+string(lion.ID)+path, `{"signal":9,"command":["true"],"value":"b","metadata":{"a":"b"},"config":{"image":"host","init":{"exec":["false"]}}}`, token...)
		if e := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != http.StatusNotFound || strings.Contains(e.Error, "zoo") {
			t.Errorf("%s: %d %s", call, rec.Code, rec.Body)
		}
	}
	for _, call := range []string{"GET ", "PUT ", "DELETE ", "PUT /extend", "GET /snapshots", "POST /snapshots"} {
		method, path, _ := strings.Cut(call, " ")
		if rec := s.call(t, method, "/v1/apps/shop/volumes/"+string(volume.ID)+path, `{"size_gb":9,"snapshot_retention":9}`, token...); rec.Code != http.StatusNotFound {
			t.Errorf("volume: %s: %d %s", call, rec.Code, rec.Body)
		}
	}
	s.workers["w2"].mu.Lock()
	defer s.workers["w2"].mu.Unlock()
	if got := s.workers["w2"].machines[lion.ID]; got.State != bourse.StateStarted || got.Lease != nil || got.Boot.Number != 1 || len(got.Config.Metadata) != 0 {
		t.Errorf("the other app's object is now %+v", got)
	}
}
