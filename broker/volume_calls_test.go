package broker_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestVolumeClient tests the client's other volume calls.
func TestVolumeClient(t *testing.T) {
	s := start(t)
	app := s.app(t, "shop", "personal")
	id := bourse.OrderID("01J00000000000000000000001").In(app.ID)
	client, ctx := s.client(t), t.Context()
	v, err := client.Volumes("shop").Create(ctx, machinesapi.CreateVolume{Name: "data", Region: "gru", SizeGB: new(int64(7)), Encrypted: new(true)}, id)
	if err != nil || v.OrderID != id || !v.Encrypted {
		t.Fatalf("create: %+v, %v", v, err)
	}
	if v, err = client.Volumes("shop").Update(ctx, v.ID, machinesapi.UpdateVolume{SnapshotRetention: new(9), AutoBackup: new(false)}); err != nil || v.SnapshotRetention != 9 || v.AutoBackup {
		t.Errorf("update: %+v, %v", v, err)
	}
	if v, err = client.Volumes("shop").Extend(ctx, v.ID, 8); err != nil || v.SizeGB != 8 {
		t.Errorf("extend: %+v, %v", v, err)
	}
	first, err := client.Volumes("shop").Snapshot(ctx, v.ID)
	if err != nil || first.VolumeSize != 8<<30 || first.Status != bourse.SnapshotCreated {
		t.Errorf("snapshot: %+v, %v", first, err)
	}
	second, err := client.Volumes("shop").Snapshot(ctx, v.ID)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := client.Volumes("shop").Snapshots(ctx, v.ID); err != nil || len(list) != 2 || list[0].ID != second.ID {
		t.Errorf("snapshots: %+v, %v", list, err)
	}
	if _, err := client.Volumes("shop").Destroy(ctx, v.ID); err != nil {
		t.Errorf("destroy: %v", err)
	}
	if list, err := client.Volumes("shop").Snapshots(ctx, v.ID); err != nil || len(list) != 2 {
		t.Errorf("snapshots of a destroyed volume: %+v, %v", list, err)
	}
	restored, err := client.Volumes("shop").Create(ctx, machinesapi.CreateVolume{Name: "again", Region: "mad", Snapshot: first.ID}, "")
	if err != nil || restored.SizeGB != 8 || !restored.Encrypted || restored.Worker != "w3" {
		t.Errorf("restored: %+v, %v", restored, err)
	}
	fork, err := client.Volumes("shop").Create(ctx, machinesapi.CreateVolume{Name: "fork", Region: "gru", Source: restored.ID, Encrypted: new(false), SizeGB: new(int64(20))}, "")
	if err != nil || fork.SizeGB != 20 || fork.Encrypted || fork.State != bourse.VolumeHydrating {
		t.Errorf("fork: %+v, %v", fork, err)
	}
}

func TestOrgVolumes(t *testing.T) {
	s := start(t, func(c *broker.Config) {
		c.Tokens = tokenMap{"all": {Name: "root"}, "acme": {Name: "acme", Org: "acme"}, "shop": {Name: "shop", Apps: []bourse.AppRef{{Name: "shop"}}}}
	})
	s.app(t, "shop", "acme")
	s.app(t, "blog", "acme")
	s.app(t, "other", "else")
	for _, app := range []bourse.AppName{"shop", "blog", "other"} {
		s.workers["w1"].addVolume(bourse.Order{App: bourse.App{Name: app}, Volume: &bourse.VolumeOrder{Name: string(app), SizeGB: 1}})
	}
	for token, want := range map[string]string{"all": "blog shop", "acme": "blog shop", "shop": "shop"} {
		client := s.client(t)
		client.Token = token
		list, _, err := client.Org("acme").Volumes(t.Context())
		var got []string
		for _, v := range list {
			got = append(got, v.Name)
		}
		if err != nil || !sameWords(got, want) {
			t.Errorf("%s: %v, %v, want %s", token, got, err, want)
		}
	}
	client := s.client(t)
	client.Token = "acme"
	if _, _, err := client.Org("else").Volumes(t.Context()); bourse.CodeOf(err) != bourse.CodeForbidden {
		t.Errorf("another organization's volumes: %v", err)
	}
}

func sameWords(got []string, want string) bool {
	words := strings.Fields(want)
	if len(got) != len(words) {
		return false
	}
	for _, w := range words {
		if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+w+" ") {
			return false
		}
	}
	return true
}

// TestDeleteAppWithVolumes checks that deleting an app does not delete its volumes accidentally.
func TestDeleteAppWithVolumes(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	v := s.volume("w1")
	if rec := s.call(t, http.MethodDelete, "/v1/apps/shop", ""); rec.Code != http.StatusPreconditionFailed || !strings.Contains(rec.Body.String(), "1 volumes") {
		t.Errorf("without force: %d %s", rec.Code, rec.Body)
	}
	if rec := s.call(t, http.MethodDelete, "/v1/apps/shop?force=true", ""); rec.Code != http.StatusAccepted {
		t.Errorf("with force: %d %s", rec.Code, rec.Body)
	}
	if got := s.workers["w1"].volumes[v.ID].State; got != bourse.VolumeDestroyed {
		t.Errorf("the volume is %s", got)
	}
}
