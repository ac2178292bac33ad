package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func stored() []machinesapi.Volume {
	base := bourse.Volume{
		App: "shop", Worker: "gru-1", Region: "gru", State: bourse.VolumeCreated, CreatedAt: now.Add(-26 * time.Hour),
		Spec: bourse.VolumeOrder{Name: "data", SizeGB: 10, FSType: "ext4", RetentionDays: 5, ScheduledSnaps: true},
	}
	used, away := base, base
	used.ID, used.Machine = "vol_0abcd0123456789a", "148e21ea1d5389"
	used.Usage = &bourse.VolumeUsage{BlockSize: 4096, Blocks: 2500000, BlocksFree: 2000000, BlocksAvail: 2000000}
	away.ID, away.Worker, away.State = "vol_0abce0123456789b", "gru-2", bourse.VolumeHydrating
	out := []machinesapi.Volume{machinesapi.FromVolume(&used), machinesapi.FromVolume(&away)}
	out[1].HostStatus = machinesapi.HostUnreachable
	return out
}

func TestVolumeList(t *testing.T) {
	got := against(t, replies(http.StatusOK, stored()), "volume", "list", "-a", "shop")
	if got.code != 0 || got.err != "" {
		t.Fatalf("exit status %d, stderr %q", got.code, got.err)
	}
	golden(t, "volume_list", got.out)
	none := against(t, replies(http.StatusOK, []machinesapi.Volume{}), "volume", "list", "-a", "shop")
	if none.code != 0 || none.out != "" || !strings.Contains(none.err, "bourse volume create") {
		t.Errorf("an app without volumes: %+v", none)
	}
}

func TestVolumeShow(t *testing.T) {
	v := stored()[0]
	api := http.NewServeMux()
	api.Handle("GET /v1/apps/shop/volumes/"+string(v.ID), replies(http.StatusOK, v))
	api.Handle("GET /v1/apps/shop/volumes/"+string(v.ID)+"/snapshots", replies(http.StatusOK, []machinesapi.Snapshot{
		{ID: "vs_0abcd0123456789c", Size: 5 << 20, VolumeSize: 10 << 30, Status: bourse.SnapshotCreated, RetentionDays: 5, CreatedAt: now.Add(-time.Hour), Scheduled: true},
	}))
	got := against(t, api, "volume", "show", string(v.ID), "-a", "shop")
	if got.code != 0 {
		t.Fatalf("exit status %d, stderr %q", got.code, got.err)
	}
	golden(t, "volume_show", got.out)
}

// A name is what people say: one that several volumes have needs an id, unless
// a machine is to mount one of them, which takes a free one.
func TestVolumesByName(t *testing.T) {
	both := stored()
	api := replies(http.StatusOK, both)
	got := against(t, api, "volume", "extend", "data", "-a", "shop", "--size", "20GiB")
	if got.code == 0 || !strings.Contains(got.err, "2 volumes of app shop are named") || !strings.Contains(got.err, string(both[1].ID)) {
		t.Errorf("%+v, want both ids", got)
	}
	got = against(t, api, "machine", "run", "nginx", "-a", "shop", "-v", "data:/data")
	if got.code == 0 || !strings.Contains(got.err, "no free volume") {
		t.Errorf("one in use, one being filled: %+v, want none free", got)
	}
	for flag, bad := range map[string]string{"--size": "100MiB", "--snapshot-retention": "many"} {
		if got := against(t, api, "volume", "create", "data", "-r", "gru", flag, bad); got.code == 0 {
			t.Errorf("%s %s is taken", flag, bad)
		}
	}
}

func TestImageList(t *testing.T) {
	ref := bourse.ParseImageRef("nginx@sha256:0123456789abcdef")
	ref.Tag = "latest"
	list := machinesapi.ImageList{Images: []machinesapi.WorkerImage{
		{Worker: "gru-1", Region: "gru", Image: bourse.Image{Ref: ref, Bytes: 70 << 20, Disk: 190 << 20, UsedAt: now.Add(-time.Minute), InUse: true}},
		{Worker: "gru-2", Region: "gru", Image: bourse.Image{Ref: ref, Bytes: 70 << 20, Pull: &bourse.PullProgress{Status: "pulling", Bytes: 1, Total: 2}}},
	}}
	got := against(t, replies(http.StatusOK, list), "image", "list")
	if got.code != 0 || got.err != "" {
		t.Fatalf("exit status %d, stderr %q", got.code, got.err)
	}
	golden(t, "image_list", got.out)
}

// A pull fails when any of the workers does, and says which.
func TestImagePull(t *testing.T) {
	lines := func(list ...machinesapi.PullLine) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, l := range list {
				_ = json.NewEncoder(w).Encode(l)
			}
		})
	}
	pulling := machinesapi.PullLine{Worker: "gru-1", Image: &bourse.Image{Pull: &bourse.PullProgress{Status: "pulling", Bytes: 1, Total: 2}}}
	done := machinesapi.PullLine{Worker: "gru-1", Done: true, Image: &bourse.Image{Bytes: 70 << 20}}
	failed := machinesapi.PullLine{Worker: "gru-2", Error: &machinesapi.ErrorBody{Code: bourse.CodeNotFound, Error: "no such image"}}
	if got := against(t, lines(pulling, done), "image", "pull", "nginx"); got.code != 0 || got.err != "gru-1  here, 70.0 MiB\n" {
		t.Errorf("%+v", got)
	}
	if got := against(t, lines(pulling, failed, done), "image", "pull", "nginx"); got.code == 0 || !strings.Contains(got.err, "worker gru-2: no such image") {
		t.Errorf("%+v, want a failure that names gru-2", got)
	}
	if got := against(t, lines(), "image", "pull", "nginx"); got.code == 0 || !strings.Contains(got.err, "no worker there") {
		t.Errorf("nobody pulled: %+v", got)
	}
}

func TestMachineStats(t *testing.T) {
	u := machinesapi.Usage{CPUs: 0.254, CPULimit: 1, Memory: 100 << 20, MemLimit: 256 << 20, PIDs: 7, Read: -1, Written: 4096, Throttled: 1500}
	got := against(t, replies(http.StatusOK, u), "machine", "stats", "148e21ea1d5389", "-a", "shop")
	if got.code != 0 || got.err != "" {
		t.Fatalf("exit status %d, stderr %q", got.code, got.err)
	}
	golden(t, "machine_stats", got.out)
}

// Where no worker runs the image, a smaller machine would not help.
func TestImageRefusedByAll(t *testing.T) {
	no := bourse.Refusal{Worker: "gru-1", Region: "gru", Reason: bourse.RefusedImage, Resource: "nginx", Detail: `no driver here runs image "nginx"`}
	refused := func(list ...bourse.Refusal) result {
		body := machinesapi.ErrorBody{Error: "no worker can fulfill the request", Code: bourse.CodeInsufficient, Refusals: list}
		return against(t, replies(http.StatusUnprocessableEntity, body), "machine", "run", "nginx")
	}
	if got := refused(no, no); got.code == 0 || !strings.Contains(got.err, "containerd") || strings.Contains(got.err, "--vm-memory") {
		t.Errorf("refused for the image by all: %s", got.err)
	}
	if got := refused(no, bourse.Refusal{Worker: "gru-2", Reason: bourse.RefusedResource, Resource: "memory"}); !strings.Contains(got.err, "--vm-memory") {
		t.Errorf("refused for memory by one: %s", got.err)
	}
}
