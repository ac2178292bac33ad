package worker

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
)

// readExport reads the stream of a volume or snapshot.
func readExport(t *testing.T, f fabric.Fabric, e fabric.Export) (string, error) {
	t.Helper()
	r, err := fabric.VolumeExport.Open(t.Context(), f, w1, e, nil)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

// TestVolumeVerbs calls the worker's volume verbs as other servers do.
func TestVolumeVerbs(t *testing.T) {
	h, vols := newVolumeHost(t)
	v := h.placeVolume()
	vols.Write(v.ID, "0123456789")
	f, ctx, to := fabrictest.Serving(h.Handler()), t.Context(), w1
	to.Tag = v.ID.Tag()

	list, err := fabric.VolumeList.Call(ctx, f, to, fabric.VolumesQuery{App: "web"})
	if diff := cmp.Diff([]bourse.Volume{h.getVolume(v.ID)}, list); err != nil || diff != "" {
		t.Errorf("volumes of the app: %v (-want +got):\n%s", err, diff)
	}
	if list, err := fabric.VolumeList.Call(ctx, f, to, fabric.VolumesQuery{App: "other"}); err != nil || len(list) != 0 {
		t.Errorf("volumes of another app: %v, %v", list, err)
	}
	got, err := fabric.VolumeShow.Call(ctx, f, to, v.ID)
	if err != nil || got.Usage == nil || got.Usage.Blocks-got.Usage.BlocksFree != 10 {
		t.Errorf("volume %+v, %v, want 10 blocks in use", got, err)
	}
	got, err = fabric.VolumeUpdate.Call(ctx, f, to, fabric.VolumeChange{Volume: v.ID, RetentionDays: new(7), ScheduledSnaps: new(true)})
	if err != nil || got.Spec.RetentionDays != 7 || !got.Spec.ScheduledSnaps {
		t.Errorf("changed %+v, %v", got.Spec, err)
	}
	if _, err := fabric.VolumeUpdate.Call(ctx, f, to, fabric.VolumeChange{Volume: v.ID, RetentionDays: new(61)}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("retention of 61 days: %v", err)
	}
	if got, err = fabric.VolumeExtend.Call(ctx, f, to, fabric.ExtendRequest{Volume: v.ID, SizeGB: 11}); err != nil || got.Spec.SizeGB != 11 {
		t.Errorf("extended %+v, %v", got, err)
	}
	snap, err := fabric.VolumeSnapshot.Call(ctx, f, to, v.ID)
	if err != nil || snap.State != bourse.SnapshotCreated || snap.RetentionDays != 7 {
		t.Errorf("snapshot %+v, %v", snap, err)
	}
	for _, id := range []string{string(snap.ID), string(v.ID)} {
		checkExport(t, f, id, &v)
	}
	if _, forks := vols.Kept(); forks != 0 {
		t.Errorf("%d copies were not removed", forks)
	}
	for _, id := range []string{"nothing", "../../etc", string(bourse.NewVolumeID(1)), string(bourse.NewSnapshotID(1)), "fork of x"} {
		if _, err := readExport(t, f, fabric.Export{ID: id}); bourse.CodeOf(err) != bourse.CodeForbidden {
			t.Errorf("export of %s: %v, want forbidden", id, err)
		}
		if _, err := fabric.VolumeGrant.Call(ctx, f, to, fabric.GrantRequest{ID: id, To: "w2", App: bourse.App{Name: "web"}}); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("grant of %s: %v, want not_found", id, err)
		}
	}
	if got, err = fabric.VolumeDestroy.Call(ctx, f, to, v.ID); err != nil || got.State != bourse.VolumeDestroyed {
		t.Errorf("destroyed %+v, %v", got, err)
	}
	list, err = fabric.VolumeList.Call(ctx, f, to, fabric.VolumesQuery{Deleted: true})
	if err != nil || len(list) != 1 || !slices.Equal(ids(list[0].Snapshots), []bourse.SnapshotID{snap.ID}) {
		t.Errorf("destroyed volumes: %+v, %v, want the volume with its snapshot", list, err)
	}
}

// checkExport reads a volume or snapshot as another worker does, and checks the result.
func checkExport(t *testing.T, f fabric.Fabric, id string, v *bourse.Volume) {
	t.Helper()
	grant, err := fabric.VolumeGrant.Call(t.Context(), f, w1, fabric.GrantRequest{ID: id, To: "w2", App: bourse.App{Name: "web", ID: v.AppID}})
	if err != nil {
		t.Errorf("grant of %s: %v", id, err)
	}
	text, err := readExport(t, f, fabric.Export{ID: id, Grant: grant})
	if err != nil || !strings.Contains(text, string(v.ID)) || !strings.HasSuffix(text, "\n0123456789") {
		t.Errorf("stream of %s: %q, %v", id, text, err)
	}
}

func ids(list []bourse.Snapshot) (out []bourse.SnapshotID) {
	for _, s := range list {
		out = append(out, s.ID)
	}
	return out
}
