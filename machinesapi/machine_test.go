package machinesapi_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 123456789, time.FixedZone("west", -3*3600))

// TestMachineShape checks the complete JSON of a machine, which clients of the Machines API decode.
func TestMachineShape(t *testing.T) {
	m := bourse.Machine{
		ID: "148e21ea1d5389", Name: "web", App: "shop", Worker: "w1", Region: "gru", Order: "01J00000000000000000000000",
		Instance: "01J11111111111111111111111", State: bourse.StateStopped, Cordoned: true, CreatedAt: noon, UpdatedAt: noon,
		Config: bourse.Config{Image: "nginx", StoredConfig: bourse.StoredConfig{Services: json.RawMessage(`[{"internal_port":80}]`)}},
		Lease:  &bourse.Lease{Nonce: "secret"}, Boot: bourse.Boot{Number: 2, Port: 30001, Requested: true, Exit: &bourse.Exit{Code: -1, Signal: 15, At: noon}},
		LastEvents: []bourse.Event{
			{
				ID: "01J33333333333333333333333", Type: bourse.EventExit, State: bourse.StateStopped, Source: bourse.SourceWorker, At: noon,
				Exit: &bourse.ExitEvent{Exit: bourse.Exit{Code: 7, At: noon}, Restarting: true, RestartCount: 2},
			},
			{ID: "01J22222222222222222222222", Type: bourse.EventLaunch, State: bourse.StateCreated, Source: bourse.SourceUser, At: noon},
		},
	}
	raw, err := json.Marshal(machinesapi.FromMachine(&m))
	if err != nil {
		t.Fatal(err)
	}
	want := `{
		"id": "148e21ea1d5389", "name": "web", "state": "stopped", "region": "gru",
		"instance_id": "01J11111111111111111111111", "version": "01J11111111111111111111111", "private_ip": "",
		"created_at": "2026-03-04T15:00:00Z", "updated_at": "2026-03-04T15:00:00Z", "cordoned": true,
		"image_ref": {"registry": "registry-1.docker.io", "repository": "library/nginx", "tag": "latest"},
		"config": {"image": "nginx", "guest": {"cpu_kind": "shared", "cpus": 1, "memory_mb": 256}, "init": {}, "services": [{"internal_port": 80}]},
		"events": [
			{"id": "01J33333333333333333333333", "type": "exit", "status": "stopped", "source": "worker", "timestamp": 1772636400123, "request": {
				"exit_event": {"exit_code": 7, "guest_exit_code": 7, "guest_signal": -1, "signal": -1, "oom_killed": false,
					"requested_stop": false, "restarting": true, "exited_at": "2026-03-04T15:00:00.123Z"},
				"restart_count": 2}},
			{"id": "01J22222222222222222222222", "type": "launch", "status": "created", "source": "user", "timestamp": 1772636400123}
		],
		"host_status": "ok",
		"app": "shop", "worker": "w1", "order_id": "01J00000000000000000000000", "port": 30001, "starts": 2,
		"exit": {"exit_code": 143, "guest_exit_code": 143, "guest_signal": 15, "signal": 15, "oom_killed": false,
			"requested_stop": true, "restarting": false, "exited_at": "2026-03-04T15:00:00.123Z"}
	}`
	var got, expected any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("machine (-want +got):\n%s", diff)
	}
	if m.Config.Guest != nil {
		t.Error("converting a machine modified it")
	}
	var back machinesapi.Machine
	if err := json.Unmarshal(raw, &back); err != nil || back.ID != m.ID || back.Config.Image != "nginx" {
		t.Errorf("read back: %+v, %v", back, err)
	}
}

// TestExitEventIsNeverNil checks that exit_event exists even if the exit is unknown, because
// clients dereference it without a check.
func TestExitEventIsNeverNil(t *testing.T) {
	e := machinesapi.FromEvent(&bourse.Event{Type: bourse.EventExit, At: noon})
	if e.Request == nil || e.Request.ExitEvent == nil || e.Request.ExitEvent.ExitCode != -1 || e.Request.ExitEvent.ExitedAt == "" {
		t.Errorf("got event %+v, want one with an ExitEvent", e)
	}
}

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		exit         bourse.Exit
		code, signal int
	}{
		{bourse.Exit{}, 0, -1}, {bourse.Exit{Code: 3}, 3, -1}, {bourse.Exit{Code: -1, Signal: 9}, 137, 9}, {bourse.Exit{Code: -1, Error: "lost"}, -1, -1},
	} {
		if code, signal := machinesapi.ExitStatus(c.exit); code != c.code || signal != c.signal {
			t.Errorf("%+v: %d, %d; want %d, %d", c.exit, code, signal, c.code, c.signal)
		}
	}
}

// composed returns the image name that fly-go derives from an image_ref when it clones a machine.
func composed(r bourse.ImageRef) string {
	s := r.Registry + "/" + r.Repository
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

func TestImageNameOfClonedMachine(t *testing.T) {
	for image, want := range map[string]string{
		"host":                              "/host:latest",
		"nginx":                             "registry-1.docker.io/library/nginx:latest",
		"nginx:1.27":                        "registry-1.docker.io/library/nginx:1.27",
		"acme/web":                          "registry-1.docker.io/acme/web:latest",
		"docker.io/library/nginx":           "registry-1.docker.io/library/nginx:latest",
		"registry.fly.io/app:deployment-1":  "registry.fly.io/app:deployment-1",
		"localhost/app":                     "localhost/app:latest",
		"127.0.0.1:5000/a/b:c":              "127.0.0.1:5000/a/b:c",
		"nginx@sha256:abc":                  "registry-1.docker.io/library/nginx@sha256:abc",
		"ghcr.io/acme/web:v1@sha256:abc":    "ghcr.io/acme/web:v1@sha256:abc",
		"registry-1.docker.io/library/x:v1": "registry-1.docker.io/library/x:v1",
	} {
		ref := bourse.ParseImageRef(image)
		if got := composed(ref); got != want {
			t.Errorf("%s becomes %s, want %s", image, got, want)
		}
		again := machinesapi.ImageName(composed(ref))
		if got := bourse.ParseImageRef(again); !cmp.Equal(got, ref) {
			t.Errorf("%s: its clone %s has %+v, want %+v", image, again, got, ref)
		}
		if image == bourse.ImageHost && again != bourse.ImageHost {
			t.Errorf("a clone of host requests %s", again)
		}
	}
}

func FuzzParseImage(f *testing.F) {
	for _, s := range []string{"host", "nginx:1", "a/b@sha256:c", ":", "@", "/", "a:b:c/d:e", "docker.io/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		ref := bourse.ParseImageRef(image)
		if ref.Tag == "" && ref.Digest == "" && ref.Repository != "" && image != "" && image[len(image)-1] != ':' {
			t.Errorf("%q has neither tag nor digest: %+v", image, ref)
		}
	})
}

func TestAppShape(t *testing.T) {
	a := machinesapi.FromApp(bourse.App{Name: "shop", ID: "01J00000000000000000000000", Org: "acme", CreatedAt: noon}, 2, 0)
	if a.NumericID <= 0 || a.Organization.NumericID <= 0 || a.Status != machinesapi.AppDeployed || a.CreatedAt != noon.UnixMilli() || a.MachineCount != 2 {
		t.Errorf("app is %+v", a)
	}
	if a := machinesapi.FromApp(bourse.App{}, 0, 0); a.Status != machinesapi.AppPending || a.NumericID <= 0 {
		t.Errorf("an empty app is %+v", a)
	}
}

func TestLeaseShape(t *testing.T) {
	l := bourse.Lease{Nonce: "0123456789ab", Owner: "ann", Description: "deploy", ExpiresAt: noon}
	raw, err := json.Marshal(machinesapi.FromLease(&l, "01J11111111111111111111111"))
	want := `{"status":"success","data":{"nonce":"0123456789ab","expires_at":1772636400,"owner":"ann","description":"deploy","version":"01J11111111111111111111111"}}`
	if err != nil || string(raw) != want {
		t.Errorf("lease is %s, %v; want %s", raw, err, want)
	}
	if info, _ := json.Marshal(machinesapi.InfoFromLease(&l)); string(info) != `{"owner":"ann","description":"deploy","expires_at":1772636400}` {
		t.Errorf("as shown to others: %s", info)
	}
}
