package volumes

import (
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestWhenAVolumeGrows(t *testing.T) {
	for name, c := range map[string]struct {
		mount         bourse.Mount
		state         bourse.VolumeState
		size, percent int64 // the expected new size, and how full the volume is
		want          int64
	}{
		"not asked for":                    {bourse.Mount{AddSizeGB: 1}, "", 1, 100, 0},
		"not full":                         {bourse.Mount{ExtendThresholdPercent: 80, AddSizeGB: 1}, "", 1, 79, 0},
		"full":                             {bourse.Mount{ExtendThresholdPercent: 80, AddSizeGB: 2}, "", 1, 80, 3},
		"up to its limit":                  {bourse.Mount{ExtendThresholdPercent: 80, AddSizeGB: 5, SizeGBLimit: 4}, "", 3, 99, 4},
		"not beyond":                       {bourse.Mount{ExtendThresholdPercent: 80, AddSizeGB: 5, SizeGBLimit: 4}, "", 4, 100, 0},
		"no larger than any volume may be": {bourse.Mount{ExtendThresholdPercent: 80, AddSizeGB: 1 << 40}, "", 4, 100, bourse.MaxVolumeGB},
		"it grows already":                 {bourse.Mount{ExtendThresholdPercent: 80, AddSizeGB: 1}, bourse.VolumeExtending, 4, 100, 0},
		"nothing is known":                 {bourse.Mount{ExtendThresholdPercent: 80, AddSizeGB: 1}, "", 4, -1, 0},
	} {
		v := bourse.Volume{State: bourse.VolumeCreated, Spec: bourse.VolumeOrder{SizeGB: c.size}}
		if c.state != "" {
			v.State = c.state
		}
		usage := bourse.VolumeUsage{BlockSize: 4096, Blocks: 1000, BlocksFree: 1000 - 10*c.percent, BlocksAvail: 1000 - 10*c.percent}
		if c.percent < 0 {
			usage = bourse.VolumeUsage{}
		}
		if got, _ := targetSize(&c.mount, &v, usage); got != c.want {
			t.Errorf("%s: target size %d, want %d", name, got, c.want)
		}
	}
}
