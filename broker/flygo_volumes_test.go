package broker_test

import (
	"errors"
	"testing"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/bourse-dev/bourse"
)

// TestFlyGoVolumes manages volumes with fly-go's client of the Machines API.
func TestFlyGoVolumes(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	client, ctx := flyClient(t, s, "any"), t.Context()

	v, err := client.CreateVolume(ctx, "shop", fly.CreateVolumeRequest{
		Name: "data", Region: "gru", SizeGb: new(1), RequireUniqueZone: new(true), ComputeImage: "nginx",
		ComputeRequirements: &fly.MachineGuest{CPUKind: "shared", CPUs: 1, MemoryMB: 256},
	})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	if v.State != "created" || v.SizeGb != 1 || v.Region != "gru" || v.Zone == "" || v.HostStatus != "ok" || v.CreatedAt.IsZero() || v.IsAttached() || !v.AutoBackupEnabled {
		t.Errorf("created %+v", v)
	}
	if order := s.lastOrder(t); order.Volume.Compute == nil || order.Volume.Compute.MemoryMB != 256 || order.Volume.FSType != "ext4" {
		t.Errorf("ordered %+v", order.Volume)
	}
	if list, err := client.GetVolumes(ctx, "shop"); err != nil || len(list) != 1 || list[0].ID != v.ID {
		t.Errorf("list: %+v, %v", list, err)
	}
	s.bind(bourse.VolumeID(v.ID), "aaaaaa00000001")
	if got, err := client.GetVolume(ctx, "shop", v.ID); err != nil || !got.IsAttached() || *got.AttachedMachine != "aaaaaa00000001" {
		t.Errorf("get: %+v, %v", got, err)
	}
	if got, err := client.UpdateVolume(ctx, "shop", v.ID, fly.UpdateVolumeRequest{SnapshotRetention: new(7)}); err != nil || got.SnapshotRetention != 7 || !got.AutoBackupEnabled {
		t.Errorf("update: %+v, %v", got, err)
	}
	if got, restart, err := client.ExtendVolume(ctx, "shop", v.ID, 4); err != nil || restart || got.SizeGb != 4 {
		t.Errorf("extend: %+v, %v, %v", got, restart, err)
	}
	if err := client.CreateVolumeSnapshot(ctx, "shop", v.ID); err != nil {
		t.Errorf("snapshot: %v", err)
	}
	snapshots, err := client.GetVolumeSnapshots(ctx, "shop", v.ID)
	if err != nil || len(snapshots) != 1 || snapshots[0].Status != "created" || snapshots[0].VolumeSize != 4<<30 || *snapshots[0].RetentionDays != 7 || snapshots[0].CreatedAt.IsZero() {
		t.Fatalf("snapshots: %+v, %v", snapshots, err)
	}
	var refused *flaps.FlapsError
	if _, err := client.DeleteVolume(ctx, "shop", v.ID); !errors.As(err, &refused) || refused.ResponseStatusCode != 412 {
		t.Errorf("delete an attached volume: %v", err)
	}
	s.bind(bourse.VolumeID(v.ID), "")
	if got, err := client.DeleteVolume(ctx, "shop", v.ID); err != nil || got.State != "destroyed" {
		t.Errorf("delete: %+v, %v", got, err)
	}
	if list, err := client.GetAllVolumes(ctx, "shop"); err != nil || len(list) != 0 {
		t.Errorf("list after the deletion: %+v, %v", list, err)
	}
	restored, err := client.CreateVolume(ctx, "shop", fly.CreateVolumeRequest{Name: "again", Region: "mad", SnapshotID: &snapshots[0].ID})
	if err != nil || restored.SizeGb != 4 || restored.State != "hydrating" {
		t.Errorf("restore: %+v, %v", restored, err)
	}
}

// TestFlyGoVolumeErrors checks how fly-go's client interprets the errors that it handles specially.
func TestFlyGoVolumeErrors(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	client, ctx := flyClient(t, s, "any"), t.Context()
	if _, err := client.GetVolume(ctx, "shop", "vol_0000000000000000"); !errors.Is(err, flaps.ErrFlapsNotFound) {
		t.Errorf("missing volume: %v", err)
	}
	if list, err := client.GetVolumes(ctx, "shop"); err != nil || list == nil || len(list) != 0 {
		t.Errorf("no volumes: %+v, %v", list, err)
	}
	for _, w := range s.workers {
		w.full = true
	}
	_, err := client.CreateVolume(ctx, "shop", fly.CreateVolumeRequest{Name: "data", Region: "gru"})
	if err == nil || *flaps.GetErrorStatusCode(err) != "volume_placement_capacity" || len(s.orders) != 1 {
		t.Errorf("no capacity: %v after %d orders", err, len(s.orders))
	}
}
