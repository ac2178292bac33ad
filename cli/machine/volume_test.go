package machine

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func stored() []machinesapi.Volume {
	base := bourse.Volume{
		App: "shop", Worker: "gru-1", Region: "gru", State: bourse.VolumeCreated, CreatedAt: clitest.Now.Add(-26 * time.Hour),
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
	got := line.Against(t, clitest.Replies(http.StatusOK, stored()), "volume", "list", "-a", "shop")
	if got.Code != 0 || got.Err != "" {
		t.Fatalf("exit status %d, stderr %q", got.Code, got.Err)
	}
	clitest.Golden(t, "volume_list", got.Out)
	none := line.Against(t, clitest.Replies(http.StatusOK, []machinesapi.Volume{}), "volume", "list", "-a", "shop")
	if none.Code != 0 || none.Out != "" || !strings.Contains(none.Err, "bourse volume create") {
		t.Errorf("app without volumes: %+v", none)
	}
}

func TestVolumeShow(t *testing.T) {
	v := stored()[0]
	api := http.NewServeMux()
	api.Handle("GET /v1/apps/shop/volumes/"+string(v.ID), clitest.Replies(http.StatusOK, v))
	api.Handle("GET /v1/apps/shop/volumes/"+string(v.ID)+"/snapshots", clitest.Replies(http.StatusOK, []machinesapi.Snapshot{
		{ID: "vs_0abcd0123456789c", Size: 5 << 20, VolumeSize: 10 << 30, Status: bourse.SnapshotCreated, RetentionDays: 5, CreatedAt: clitest.Now.Add(-time.Hour), Scheduled: true},
	}))
	got := line.Against(t, api, "volume", "show", string(v.ID), "-a", "shop")
	if got.Code != 0 {
		t.Fatalf("exit status %d, stderr %q", got.Code, got.Err)
	}
	clitest.Golden(t, "volume_show", got.Out)
}

// TestAmbiguousVolumeNameIsRejected checks that a name that several volumes have is
// rejected with an error that lists their ids.
func TestAmbiguousVolumeNameIsRejected(t *testing.T) {
	both := stored()
	api := clitest.Replies(http.StatusOK, both)
	got := line.Against(t, api, "volume", "extend", "data", "-a", "shop", "--size", "20GiB")
	if got.Code == 0 || !strings.Contains(got.Err, "2 volumes of app shop are named") || !strings.Contains(got.Err, string(both[1].ID)) {
		t.Errorf("%+v, want both ids", got)
	}
	for flag, bad := range map[string]string{"--size": "100MiB", "--snapshot-retention": "many"} {
		if got := line.Against(t, api, "volume", "create", "data", "-r", "gru", flag, bad); got.Code == 0 {
			t.Errorf("%s %s was accepted", flag, bad)
		}
	}
}

func TestVolumeListOfAnOrganization(t *testing.T) {
	h := clitest.Paths(map[string]any{"/v1/orgs/acme/volumes": machinesapi.OrgVolumes{Volumes: stored()}})
	got := line.Against(t, h, "volume", "list", "--org", "acme")
	if got.Code != 0 || got.Err != "" || !strings.Contains(got.Out, "NAME  APP   STATE") || strings.Count(got.Out, "shop") != 2 {
		t.Errorf("%+v", got)
	}
	if got := line.Against(t, h, "volume", "list", "--org", "acme", "--app", "shop"); got.Code != 2 {
		t.Errorf("--org and --app: %+v", got)
	}
}
