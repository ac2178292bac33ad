package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// From the moment an image is resolved for a machine until the machine is
// gone, there is none at which it may be evicted.
func TestAnImageIsHeldUntilItIsRecorded(t *testing.T) {
	var u imageUse
	recorded := map[string]struct{}{}
	read := func() (map[string]struct{}, error) { return recorded, nil }
	if u.has("a", read) {
		t.Error("nobody has it")
	}
	u.hold("m1", "a")
	if !u.has("a", read) || u.has("b", read) {
		t.Error("held: a is not in use, or b is")
	}
	recorded = map[string]struct{}{"a": {}}
	u.drop("m1")
	if !u.has("a", read) {
		t.Error("recorded, and an older reading hides it")
	}
	recorded = nil
	u.changed()
	if u.has("a", read) {
		t.Error("its machine is gone, and it is in use for ever")
	}
	u.changed()
	if !u.has("a", func() (map[string]struct{}, error) { return nil, errors.New("disk") }) {
		t.Error("an unreadable store lets an image go")
	}
}

func TestLimits(t *testing.T) {
	w := &Worker{cfg: Config{Policy: Policy{PIDs: DefaultPIDs}}}
	sold := &Worker{cfg: Config{Policy: Policy{PIDs: -1, SharedQuota: true}}}
	for name, c := range map[string]struct {
		w     *Worker
		image string
		guest bourse.Guest
		want  driver.Limits
	}{
		"shared":      {w, "nginx", bourse.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}, driver.Limits{CPUWeight: 125, CPUQuota: 2000, Memory: 512, PIDs: 4096}},
		"of the host": {w, "host", bourse.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}, driver.Limits{CPUWeight: 125, CPUQuota: 2000, Memory: 512}},
		"performance": {sold, "nginx", bourse.Guest{CPUKind: "performance", CPUs: 2, MemoryMB: 512}, driver.Limits{CPUWeight: 2000, CPUQuota: 2000, Memory: 512}},
		"5 in 80": {sold, "nginx", bourse.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 512}, driver.Limits{
			CPUWeight: 125, CPUQuota: 125, CPUPeriod: 80 * time.Millisecond, CPUBurst: 10 * time.Millisecond, Memory: 512,
		}},
	} {
		m := &bourse.Machine{Config: bourse.Config{Image: c.image, Guest: &c.guest}, Takes: c.guest.Takes(DefaultShared)}
		if got := c.w.limits(m); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
