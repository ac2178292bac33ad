package broker_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

const volumesPath = "/v1/apps/shop/volumes"

// TestVolumeOnTheWire checks the JSON on which clients of the Machines API depend.
func TestVolumeOnTheWire(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	rec := s.call(t, http.MethodPost, volumesPath, `{"name":"data","region":"gru","size_gb":null,"encrypted":null,"compute":{"cpus":2},"compute_image":"x","snapshot_id":null}`)
	if rec.Code != http.StatusOK || rec.Header().Get("Bourse-Order-Id") == "" {
		t.Fatalf("create: %d %s", rec.Code, rec.Body)
	}
	var got map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	id := got["id"].(string)
	for name, want := range map[string]any{
		"name": "data", "state": "created", "size_gb": 3.0, "region": "gru", "zone": "aaaaaa", "encrypted": false, "fstype": "ext4",
		"attached_machine_id": nil, "attached_alloc_id": nil, "host_status": "ok", "host_dedication_id": "", "snapshot_retention": 5.0,
		"auto_backup_enabled": true, "type": "local", "worker": "w1", "app": "shop",
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	if at, _ := got["created_at"].(string); !strings.HasSuffix(at, "Z") || len(at) != len("2026-01-02T03:04:05Z") {
		t.Errorf("created_at is %q", at)
	}
	if strings.Contains(rec.Body.String(), "blocks") {
		t.Errorf("the usage of an unmeasured volume: %s", rec.Body)
	}
	order := s.lastOrder(t)
	if d := cmp.Diff(&bourse.VolumeOrder{
		Name: "data", SizeGB: 3, FSType: "ext4", UniqueZone: true, RetentionDays: 5, ScheduledSnaps: true,
		Compute: &bourse.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512},
	}, order.Volume); d != "" {
		t.Errorf("ordered (-want +got):\n%s", d)
	}

	one := volumesPath + "/" + id
	s.bind(bourse.VolumeID(id), "aaaaaa00000001")
	if err := json.Unmarshal(s.call(t, http.MethodGet, one, "").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"attached_machine_id": "aaaaaa00000001", "blocks": 1000.0, "block_size": 4096.0, "blocks_free": 600.0, "blocks_avail": 500.0,
		"bytes_total": 4096000.0, "bytes_used": 1638400.0,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	rec = s.call(t, http.MethodDelete, one, "")
	if rec.Code != http.StatusPreconditionFailed || !strings.Contains(rec.Body.String(), `"failed_precondition: volume is currently bound to machine: aaaaaa00000001"`) {
		t.Errorf("destroy an attached one: %d %s", rec.Code, rec.Body)
	}
	rec = s.call(t, http.MethodPut, one+"/extend", `{"size_gb":9}`)
	if body := rec.Body.String(); rec.Code != http.StatusOK || !strings.Contains(body, `"needs_restart":false`) || !strings.Contains(body, `"volume":{`) {
		t.Errorf("extend: %d %s", rec.Code, rec.Body)
	}
	s.bind(bourse.VolumeID(id), "")
	rec = s.call(t, http.MethodDelete, one, "")
	if rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), `"state":"destroyed"`) {
		t.Errorf("destroy: %d %s", rec.Code, rec.Body)
	}
}

func TestVolumeRefusals(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	s.app(t, "blog", "personal")
	mine := s.volume("w1")
	theirs := s.workers["w1"].addVolume(bourse.Order{App: bourse.App{Name: "blog"}, Volume: &bourse.VolumeOrder{Name: "data", SizeGB: 1}})
	gone := bourse.NewVolumeID(0xdddddd)
	tests := []struct {
		name         string
		method, path string
		body         string
		status       int
		text         string
	}{
		{"no region", "POST", "", `{"name":"data"}`, 400, "region"},
		{"two regions", "POST", "", `{"name":"data","region":"gru,mad"}`, 400, "single region"},
		{"any region", "POST", "", `{"name":"data","region":"any"}`, 400, "single region"},
		{"an unknown region", "POST", "", `{"name":"data","region":"lhr"}`, 400, "lhr"},
		{"no name", "POST", "", `{"region":"gru"}`, 400, "name"},
		{"a bad name", "POST", "", `{"name":"../x","region":"gru"}`, 400, "name"},
		{"no size", "POST", "", `{"name":"data","region":"gru","size_gb":-1}`, 400, "size_gb"},
		{"too large", "POST", "", `{"name":"data","region":"gru","size_gb":99999999}`, 400, "size_gb"},
		{"a raw volume", "POST", "", `{"name":"data","region":"gru","fstype":"raw"}`, 400, "fstype"},
		{"retained forever", "POST", "", `{"name":"data","region":"gru","snapshot_retention":61}`, 400, "snapshot_retention"},
		{"for an absurd machine", "POST", "", `{"name":"data","region":"gru","compute":{"cpus":-1}}`, 400, "cpus"},
		{"with an absurd requirement", "POST", "", `{"name":"data","region":"gru","requirements":{"../x":1}}`, 400, "../x"},
		{"from two sources", "POST", "", `{"name":"data","region":"gru","source_volume_id":"` + string(mine.ID) + `","snapshot_id":"vs_0000000000000000"}`, 400, "cannot be combined"},
		{"from a volume of another app", "POST", "", `{"name":"data","region":"gru","source_volume_id":"` + string(theirs.ID) + `"}`, 404, "source volume"},
		{"from an invalid volume ID", "POST", "", `{"name":"data","region":"gru","source_volume_id":"x"}`, 404, "source volume"},
		{"from a volume of a lost worker", "POST", "", `{"name":"data","region":"gru","source_volume_id":"` + string(gone) + `"}`, 503, "cannot be reached"},
		{"from a missing snapshot", "POST", "", `{"name":"data","region":"gru","snapshot_id":"` + string(bourse.NewSnapshotID(0xaaaaaa)) + `"}`, 404, "snapshot"},
		{"no body", "POST", "", ``, 400, "body"},
		{"show another app's", "GET", "/" + string(theirs.ID), "", 404, "not_found: volume not found"},
		{"show nonsense", "GET", "/x", "", 404, "volume not found"},
		{"show a missing one of a lost worker", "GET", "/" + string(gone), "", 404, "volume not found"},
		{"destroy another app's", "DELETE", "/" + string(theirs.ID), "", 404, "volume not found"},
		{"extend another app's", "PUT", "/" + string(theirs.ID) + "/extend", `{"size_gb":9}`, 404, "volume not found"},
		{"snapshots of another app's", "GET", "/" + string(theirs.ID) + "/snapshots", "", 404, "volume not found"},
		{"snapshot of another app's", "POST", "/" + string(theirs.ID) + "/snapshots", "", 404, "volume not found"},
		{"shrink", "PUT", "/" + string(mine.ID) + "/extend", `{"size_gb":1}`, 400, "shrinks"},
		{"extend to nothing", "PUT", "/" + string(mine.ID) + "/extend", `{}`, 400, "size_gb"},
		{"keep snapshots forever", "PUT", "/" + string(mine.ID), `{"snapshot_retention":0}`, 400, "snapshot_retention"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := s.call(t, tt.method, volumesPath+tt.path, tt.body)
			if rec.Code != tt.status || !strings.Contains(rec.Body.String(), tt.text) {
				t.Errorf("got %d %s, want %d and %q", rec.Code, rec.Body, tt.status, tt.text)
			}
		})
	}
	if len(s.orders) != 0 {
		t.Errorf("%d orders were placed", len(s.orders))
	}
	if rec := s.call(t, http.MethodGet, "/v1/apps/nobody/volumes", ""); rec.Code != http.StatusNotFound {
		t.Errorf("volumes of no app: %d %s", rec.Code, rec.Body)
	}
	if rec := s.call(t, http.MethodGet, volumesPath, ""); rec.Code != http.StatusOK || strings.Count(rec.Body.String(), `"id"`) != 1 {
		t.Errorf("list: %d %s", rec.Code, rec.Body)
	}
}

// TestVolumeWithoutRoom checks that the reply to a volume order refused for lack of capacity contains the code and the
// phrases that clients expect.
func TestVolumeWithoutRoom(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	v := s.volume("w1")
	for _, w := range s.workers {
		w.full = true
	}
	var body machinesapi.ErrorBody
	check := func(what string, rec interface{ Result() *http.Response }, phrase string) {
		t.Helper()
		resp := rec.Result()
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusPreconditionFailed || body.Status != machinesapi.StatusVolumePlacement || body.Code != bourse.CodeInsufficient || !strings.Contains(body.Error, phrase) {
			t.Errorf("%s: %d %+v, want %q", what, resp.StatusCode, body, phrase)
		}
	}
	check("create", s.call(t, http.MethodPost, volumesPath, `{"name":"data","region":"gru"}`), "no capacity")
	if len(body.Refusals) != 2 || body.OrderID == "" {
		t.Errorf("refusals %+v of order %q", body.Refusals, body.OrderID)
	}
	check("extend", s.call(t, http.MethodPut, volumesPath+"/"+string(v.ID)+"/extend", `{"size_gb":9}`), "no capacity")
	mounting := `{"region":"gru","config":{"image":"host","init":{"exec":["sleep","60"]},"mounts":[{"volume":"` + string(v.ID) + `","path":"/data"}]}}`
	check("a machine on it", s.call(t, http.MethodPost, "/v1/apps/shop/machines", mounting), "insufficient resources to create new machine with existing volume '"+string(v.ID)+"'")

	s.workers["w1"].full = false
	s.bind(v.ID, "aaaaaa00000001")
	rec := s.call(t, http.MethodPost, "/v1/apps/shop/machines", mounting)
	if text := rec.Body.String(); rec.Code != http.StatusPreconditionFailed || !strings.Contains(text, `"failed_precondition: volume already claimed by machine`) || !strings.Contains(text, `"code":"failed_precondition"`) {
		t.Errorf("a machine on an attached volume: %d %s", rec.Code, rec.Body)
	}
	s.bind(v.ID, "")
	if rec := s.call(t, http.MethodPost, "/v1/apps/shop/machines", mounting); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), `"worker":"w1"`) {
		t.Errorf("a machine on an unattached volume: %d %s", rec.Code, rec.Body)
	}
}

// TestVolumeListsAreNeverOlderThanReplies checks that no caller finds an older version of a volume
// in a list than one that it has already received, even if the view has received nothing yet.
func TestVolumeListsAreNeverOlderThanReplies(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	s.view.freeze()
	client := s.client(t)
	list := func() string {
		t.Helper()
		found, _, err := client.Volumes("shop").List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, v := range found {
			out = append(out, v.Name+" "+string(v.State))
		}
		return strings.Join(out, ", ")
	}
	if got := list(); got != "" {
		t.Fatalf("at first: %s", got)
	}
	v, err := client.Volumes("shop").Create(t.Context(), machinesapi.CreateVolume{Name: "data", Region: "gru"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := list(); got != "data created" {
		t.Errorf("after it was created: %s", got)
	}
	s.view.catchUp()
	if got := list(); got != "data created" {
		t.Errorf("after the view received it: %s", got)
	}
	if _, err := client.Volumes("shop").Destroy(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	if got := list(); got != "" {
		t.Errorf("after it was destroyed: %s", got)
	}
}

func TestVolumeOfALostWorker(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	v := s.volume("w1")
	other := s.volume("w3")
	s.workers["w3"].silence(errDown)
	client := s.client(t)
	got, err := client.Volumes("shop").Get(t.Context(), other.ID)
	if err != nil || got.HostStatus != machinesapi.HostUnreachable || got.HostHeard == "" || got.Name != "data" {
		t.Errorf("from an unresponsive worker: %+v, %v", got, err)
	}
	s.lose("w1")
	if _, err := client.Volumes("shop").Destroy(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("destroy a lost worker's volume: %v", err)
	}
	list, _, err := client.Volumes("shop").List(t.Context())
	if err != nil || len(list) != 2 || list[0].HostStatus != machinesapi.HostUnreachable || list[1].HostStatus != machinesapi.HostOK {
		t.Errorf("list: %+v, %v", list, err)
	}
	s.view.set(func(v *fakeView) { v.unsynced = true })
	if _, silent, err := client.Volumes("shop").List(t.Context()); err != nil || !cmp.Equal(silent, []bourse.WorkerID{"w3"}) {
		t.Errorf("while the view is not in sync: unreachable %v, %v", silent, err)
	}
}

// TestNoWorkerCanEncrypt checks that, if no worker can encrypt volumes, the reply does not report a
// lack of capacity, because neither waiting nor a smaller size would help.
func TestNoWorkerCanEncrypt(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	for _, w := range s.workers {
		w.plain = true
	}
	const order = `{"name":"data","region":"gru","encrypted":true}`
	rec := s.call(t, http.MethodPost, volumesPath, order)
	body := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
	if rec.Code != http.StatusPreconditionFailed || body.Code != bourse.CodeFailedPrecondition || body.Status != machinesapi.StatusUnknown || len(body.Refusals) != 2 ||
		body.Error != "no worker there can encrypt volumes: use another region, or encrypted: false (flyctl volumes create --no-encryption)" {
		t.Errorf("%d %+v", rec.Code, body)
	}
	w := s.workers["w1"] // this worker could encrypt the volume, but has no capacity
	w.plain, w.full = false, true
	rec = s.call(t, http.MethodPost, volumesPath, order)
	if body := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); body.Code != bourse.CodeInsufficient || body.Status != machinesapi.StatusVolumePlacement {
		t.Errorf("%d %+v", rec.Code, body)
	}
}

// TestAppsCountVolumes checks that an app's volume_count is the number of its existing volumes.
func TestAppsCountVolumes(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	s.volume("w1")
	gone := s.volume("w1")
	if rec := s.call(t, http.MethodDelete, volumesPath+"/"+string(gone.ID), ""); rec.Code != http.StatusOK {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	app := decodeBody[machinesapi.App](t, s.call(t, http.MethodGet, "/v1/apps/shop", "").Body.Bytes())
	list := decodeBody[machinesapi.AppList](t, s.call(t, http.MethodGet, "/v1/apps", "").Body.Bytes())
	if app.VolumeCount != 1 || len(list.Apps) == 0 || list.Apps[len(list.Apps)-1].VolumeCount != 1 {
		t.Errorf("app %+v, list %+v: want 1 volume", app, list)
	}
}
