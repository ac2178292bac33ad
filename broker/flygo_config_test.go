package broker_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// FuzzAcceptedConfigsDecode checks that clients of the Machines API can decode a machine with any
// config that the broker accepts.
func FuzzAcceptedConfigsDecode(f *testing.F) {
	for _, field := range []string{
		`"services":{}`, `"checks":[1]`, `"schedule":7`, `"services":[{"ports":[{"port":80,"handlers":["http"]}],"autostop":"off","checks":[{"interval":"1s"}]}]`,
		`"checks":{"a":{"interval":15000000000,"timeout":"","port":1e2}}`, `"dns":{"options":[{"name":"a","value":1}]}`, `"metrics":{"port":70000000000}`,
		`"services":[{"PORTS":[{"Port":1}]}]`, `"services":null`, `"standbys":[null]`, `"statics":[null]`, `"volumes":[{"name":"v","image":null}]`,
		`"stop_config":{"timeout":"5s","signal":"SIGTERM"}`, `"restart":{"policy":"always","max_retries":3}`, `"rootfs":{"size_gb":1,"persist":7}`,
		`"rootfs":{"persist":1}`, `"guest":{"max_memory_mb":"x","kernel_args":[1]}`, `"init":{"swap_size_mb":512,"kernel_args":["a"]}`,
		`"CACHE_DRIVE":{"size_mb":-1}`, `"cache_drive":{"size_mb":5},"spot":{"max_price_fraction":0.5},"disable_machine_autostart":true`,
		`"restart":{"gpu_bid_price":1e39}`, `"guest":{"persist_rootfs":0},"Guest":{"host_dedication_id":""}`,
		`"containers":[{"name":"a","files":[null,{"mode":1}],"restart":{"gpu_bid_price":1e39}}]`, `"processes":[{"env":{"a":null}}]`,
		`"guest":{"cpus":2,"memory_mb":512,"gpus":0}`, `"metadata":{"a":"b"},"env":{"A":"b"}`,
	} {
		f.Add([]byte(`{"image":"host","init":{"exec":["true"]},` + field + `}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var config bourse.Config
		if json.Unmarshal(body, &config) != nil || config.Normalize() != nil {
			return
		}
		if _, err := workload.Review(&config); err != nil {
			return
		}
		m := bourse.Machine{ID: "148e21aabbccdd", Config: config, CreatedAt: time.Unix(1e9, 0), UpdatedAt: time.Unix(1e9, 0)}
		out, err := json.Marshal(machinesapi.FromMachine(&m))
		if err != nil {
			t.Fatal(err)
		}
		var got fly.Machine
		if err := json.Unmarshal(out, &got); err != nil {
			t.Errorf("%s was accepted but cannot be decoded: %v", body, err)
		}
	})
}

// TestAPublishedConfigThatClientsCannotDecode checks that a hostile worker cannot publish a config that prevents
// clients from decoding the list of machines, and that the broker rejects such a config in a request.
func TestAPublishedConfigThatClientsCannotDecode(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	bad := bourse.Config{Image: "host", Init: bourse.Init{Exec: []string{"true"}}, StoredConfig: bourse.StoredConfig{Services: []byte(`{}`), Checks: []byte(`7`)}}
	s.workers["w1"].add(bourse.Order{ID: bourse.NewOrderID(), App: bourse.App{Name: "shop"}, Config: bad}, bourse.StateStarted)
	var list []fly.Machine
	if err := json.Unmarshal(s.call(t, "GET", "/v1/apps/shop/machines", "").Body.Bytes(), &list); err != nil || len(list) != 1 {
		t.Errorf("list: %+v, %v", list, err)
	}
	body, err := json.Marshal(machinesapi.CreateMachine{Config: &bad})
	if err != nil {
		t.Fatal(err)
	}
	if rec := s.call(t, "POST", createPath, string(body)); rec.Code != http.StatusBadRequest {
		t.Errorf("a new one: %d %s", rec.Code, rec.Body)
	}
}
