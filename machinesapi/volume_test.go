package machinesapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestCreateVolumeSpec(t *testing.T) {
	absent := bourse.VolumeOrder{Name: "data", UniqueZone: true, ScheduledSnaps: true}
	with := func(change func(*bourse.VolumeOrder)) bourse.VolumeOrder {
		v := absent
		change(&v)
		return v
	}
	guest := &bourse.Guest{CPUKind: "performance", CPUs: 2}
	tests := map[string]struct {
		body string
		want bourse.VolumeOrder
	}{
		"only a name": {`{"name":"data"}`, absent},
		"all null": {`{"name":"data","size_gb":null,"encrypted":null,"fstype":null,"require_unique_zone":null,"unique_zone_app_wide":null,
			"snapshot_retention":null,"auto_backup_enabled":null,"snapshot_id":null,"source_volume_id":null,"compute":null,"compute_image":null}`, absent},
		"all set": {
			`{"name":"data","size_gb":7,"encrypted":true,"fstype":"ext4","require_unique_zone":false,"unique_zone_app_wide":true,"snapshot_retention":9,"auto_backup_enabled":false}`,
			bourse.VolumeOrder{Name: "data", SizeGB: 7, Encrypted: true, FSType: "ext4", UniqueZoneApp: true, RetentionDays: 9},
		},
		"for a guest":         {`{"name":"data","compute":{"cpu_kind":"performance","cpus":2}}`, with(func(v *bourse.VolumeOrder) { v.Compute = guest })},
		"for a nested guest":  {`{"name":"data","compute":{"guest":{"cpu_kind":"performance","cpus":2}}}`, with(func(v *bourse.VolumeOrder) { v.Compute = guest })},
		"for a default guest": {`{"name":"data","compute":{}}`, with(func(v *bourse.VolumeOrder) { v.Compute = &bourse.Guest{} })},
		"from a snapshot":     {`{"name":"data","snapshot_id":"vs_1"}`, with(func(v *bourse.VolumeOrder) { v.Snapshot = "vs_1" })},
		"a fork":              {`{"name":"data","source_volume_id":"vol_1"}`, with(func(v *bourse.VolumeOrder) { v.Source = "vol_1" })},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var in machinesapi.CreateVolume
			if err := json.Unmarshal([]byte(tt.body), &in); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, in.Spec()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			again, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			var same machinesapi.CreateVolume
			if err := json.Unmarshal(again, &same); err != nil || !cmp.Equal(in.Spec(), same.Spec()) {
				t.Errorf("encoded as %s, it is decoded differently: %v", again, err)
			}
		})
	}
}

func TestVolumeShape(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600))
	v := bourse.Volume{ID: "vol_0000100000000001", Machine: "m", CreatedAt: at, UpdatedAt: at, Spec: bourse.VolumeOrder{Name: "data", SizeGB: 3}}
	full := v
	full.Usage = &bourse.VolumeUsage{BlockSize: 4096, Blocks: 10, BlocksFree: 4, BlocksAvail: 3}
	for name, tt := range map[string]struct {
		got  machinesapi.Volume
		want []string
		not  string
	}{
		"with known usage":   {machinesapi.FromVolume(&full), []string{`"bytes_total":40960`, `"bytes_used":24576`, `"zone":"000001"`, `"attached_machine_id":"m"`, `"created_at":"2026-01-02T02:04:05Z"`}, `"error"`},
		"with unknown usage": {machinesapi.FromVolume(&v), []string{`"attached_alloc_id":null`}, "blocks"},
		"in a summary":       {machinesapi.SummaryOfVolume(&full), []string{`"size_gb":3`}, "blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := json.Marshal(tt.got)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(string(b), want) {
					t.Errorf("got %s, want %s in it", b, want)
				}
			}
			if strings.Contains(string(b), tt.not) {
				t.Errorf("got %s, want no %s in it", b, tt.not)
			}
			var again machinesapi.Volume
			if err := json.Unmarshal(b, &again); err != nil || !cmp.Equal(tt.got, again) {
				t.Errorf("read back: %v\n%s", err, cmp.Diff(tt.got, again))
			}
		})
	}
}

// FuzzCreateVolume checks how arbitrary bodies of create-volume requests are handled.
func FuzzCreateVolume(f *testing.F) {
	for _, s := range []string{`{}`, `{"name":"data","region":"gru","size_gb":1,"compute":{"guest":{"cpus":2}}}`, `{"compute":[]}`, `{"compute":{"guest":7}}`, `{"requirements":{"a":1}}`, `{"deadline":"1s"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in machinesapi.CreateVolume
		if json.Unmarshal(b, &in) != nil {
			return
		}
		spec := in.Spec().WithDefaults()
		if spec.Validate() == nil && (spec.SizeGB < 1 || spec.Name == "" || spec.FSType != bourse.DefaultFSType) {
			t.Errorf("%s is accepted as %+v", b, spec)
		}
	})
}
