package worker

import (
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestCapacityOfDevices(t *testing.T) {
	names := func(list ...string) map[string][]string { return map[string][]string{"a10": list} }
	for name, c := range map[string]struct {
		capacity Capacity
		gpus     int64 // -1 if the capacity is invalid
	}{
		"named":            {Capacity{Devices: names("nvidia.com/gpu=0", "nvidia.com/gpu=1")}, 2},
		"named and stated": {Capacity{Devices: names("nvidia.com/gpu=0"), GPUs: map[string]int64{"a10": 1}}, 1},
		"another number":   {Capacity{Devices: names("nvidia.com/gpu=0"), GPUs: map[string]int64{"a10": 2}}, -1},
		"only stated":      {Capacity{GPUs: map[string]int64{"a10": 3}}, 3},
		"twice":            {Capacity{Devices: names("nvidia.com/gpu=0", "nvidia.com/gpu=0")}, -1},
		"no CDI name":      {Capacity{Devices: names("/dev/nvidia0")}, -1},
		"no vendor":        {Capacity{Devices: names("/gpu=0")}, -1},
		"no device":        {Capacity{Devices: names("nvidia.com/gpu=")}, -1},
		"an invalid kind":  {Capacity{Devices: map[string][]string{"A 10": {"nvidia.com/gpu=0"}}}, -1},
	} {
		err := c.capacity.Validate()
		if (err != nil) != (c.gpus < 0) {
			t.Errorf("%s: %v", name, err)
		} else if got := c.capacity.amounts().Of("gpu.a10"); err == nil && got != c.gpus {
			t.Errorf("%s: %d gpus, want %d", name, got, c.gpus)
		}
	}
}

// The disk space for images is not available to machines.
func TestImagesReserveDisk(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want int64
	}{
		"no images":      {Config{Capacity: Capacity{Disk: 1000, Images: 100}}, 1000},
		"a fifth":        {Config{Capacity: Capacity{Disk: 1000}, Parts: Parts{Images: newMemImages()}}, 800},
		"stated":         {Config{Capacity: Capacity{Disk: 1000, Images: 100}, Parts: Parts{Images: newMemImages()}}, 900},
		"and overcommit": {Config{Capacity: Capacity{Disk: 1000, Overcommit: map[string]float64{"disk": 2}}, Parts: Parts{Images: newMemImages()}}, 1600},
	} {
		l := c.cfg.ledger()
		if got := l.Totals.Of(bourse.ResourceDisk); got != c.want {
			t.Errorf("%s: %d MiB, want %d", name, got, c.want)
		}
	}
	if err := (&Capacity{Disk: 10, Images: 11}).Validate(); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("more for images than the disk has: %v", err)
	}
}
