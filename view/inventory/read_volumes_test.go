package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/wire"
)

func TestVolumeReadsBackEqual(t *testing.T) {
	c := SchemaConn(t)
	all := schemaTables(t, c)
	rapid.Check(t, func(rt *rapid.T) {
		want := anyVolume(rt)
		row := VolumeRow(&want)
		if _, err := all.Check(want.Worker, row); err != nil {
			rt.Fatalf("the row does not fit: %v", err)
		}
		Plant(t, c, want.Worker, row)
		list, err := readVolumes(c, VolumeFilter{ID: want.ID})
		if err != nil || len(list) != 1 {
			rt.Fatalf("read: %d volumes, %v", len(list), err)
		}
		if n := len(want.Snapshots); n > maxSnapshots {
			want.Snapshots = want.Snapshots[n-maxSnapshots:]
		}
		if d := cmp.Diff(want, list[0].Volume); d != "" {
			rt.Fatalf("read back (-want +got):\n%s", d)
		}
	})
}

const (
	vol1 = bourse.VolumeID("vol_0000100000000001")
	vol2 = bourse.VolumeID("vol_0000200000000002")
)

func TestVolumesAreFiltered(t *testing.T) {
	c := SchemaConn(t)
	at := time.Unix(1000, 0).UTC()
	put := func(site bourse.WorkerID, id bourse.VolumeID, app bourse.AppName, after int) {
		Plant(t, c, site, VolumeRow(&bourse.Volume{ID: id, App: app, CreatedAt: at.Add(time.Duration(after))}))
	}
	put("w1", vol1, "shop", 2)
	put("w2", vol2, "shop", 1)
	put("w3", vol2, "shop", 3) // w3 is hostile or faulty
	put("w3", "vol_0000300000000003", "blog", 0)
	put("w3", "nonsense", "shop", 0)
	Plant(t, c, "w2", WorkerRow(&bourse.Facts{Worker: "w2", Tag: vol2.Tag()}, false))
	hear(t, c, "w1", true, at)
	hear(t, c, "w2", false, at)
	for name, tt := range map[string]struct {
		filter VolumeFilter
		want   []string
	}{
		"all":         {VolumeFilter{}, []string{"vol_0000300000000003 w3 unknown", "vol_0000200000000002 w2 unreachable", "vol_0000100000000001 w1 ok"}},
		"of an app":   {VolumeFilter{App: "shop"}, []string{"vol_0000200000000002 w2 unreachable", "vol_0000100000000001 w1 ok"}},
		"of a worker": {VolumeFilter{Worker: "w1"}, []string{"vol_0000100000000001 w1 ok"}},
		"one":         {VolumeFilter{ID: vol2}, []string{"vol_0000200000000002 w2 unreachable"}},
		"of nobody":   {VolumeFilter{App: "shop", Worker: "w4"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := readVolumes(c, tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range list {
				got = append(got, string(l.ID)+" "+string(l.Worker)+" "+string(l.HostStatus))
				if (l.HostStatus == machinesapi.HostUnknown) != l.HeardAt.IsZero() {
					t.Errorf("%s: heard at %s", l.ID, l.HeardAt)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestVolumeOfAnotherRelease reads rows that this version would not write.
func TestVolumeOfAnotherRelease(t *testing.T) {
	c := SchemaConn(t)
	for name, columns := range map[string]map[string]wire.Value{
		"from a release without schema 2": {"app": "shop", "name": "data", "size_gb": int64(3), "state": "created"},
		"with columns of new types":       {"name": "data", "size_gb": int64(3), "spec": `[]`, "takes": `{"cpu":1}`, "snapshots": `"none"`},
		"of a liar":                       {"name": "data", "size_gb": int64(3), "spec": `{"name":"other","size_gb":9}`, "takes": `[{"resource":"disk","amount":-1}]`},
	} {
		t.Run(name, func(t *testing.T) {
			Plant(t, c, "w1", wire.Row{Table: wire.TableVolumes, Key: string(vol1), Columns: columns})
			list, err := readVolumes(c, VolumeFilter{ID: vol1})
			if err != nil || len(list) != 1 {
				t.Fatalf("%d volumes, %v", len(list), err)
			}
			v := list[0]
			if v.Spec.Name != "data" || v.Spec.SizeGB != 3 || v.Takes != nil || v.Snapshots != nil {
				t.Errorf("got %+v", v)
			}
		})
	}
}

func TestImagesReadBack(t *testing.T) {
	c := SchemaConn(t)
	all := schemaTables(t, c)
	used := time.Unix(7, 0).UTC()
	put := func(site bourse.WorkerID, name string) bourse.Image {
		i := bourse.Image{Ref: bourse.ParseImageRef(name), Bytes: 9, Disk: 20, UsedAt: used, InUse: true}
		row := ImageRow(&i)
		if _, err := all.Check(site, row); err != nil {
			t.Fatalf("the row does not fit: %v", err)
		}
		Plant(t, c, site, row)
		i.Disk, i.InUse = 0, false // these fields are not published
		return i
	}
	nginx := put("w1", "nginx:1.27@sha256:aa")
	put("w2", "nginx@sha256:aa")
	own := put("w2", "127.0.0.1:5000/a/b@sha256:bb")
	hear(t, c, "w1", true, used)
	for name, tt := range map[string]struct {
		filter ImageFilter
		want   []ListedImage
	}{
		"by digest and worker": {ImageFilter{Digest: "sha256:aa", Worker: "w1"}, []ListedImage{{Image: nginx, Worker: "w1", HostStatus: machinesapi.HostOK, HeardAt: used}}},
		"by digest":            {ImageFilter{Digest: "sha256:bb"}, []ListedImage{{Image: own, Worker: "w2", HostStatus: machinesapi.HostUnknown}}},
		"of nobody":            {ImageFilter{Worker: "w3"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readImages(c, tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	if list, err := readImages(c, ImageFilter{}); err != nil || len(list) != 3 {
		t.Errorf("all: %d images, %v", len(list), err)
	}
}
