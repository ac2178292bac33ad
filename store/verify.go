package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
)

// Verify computes every index, count and sum anew from the records and reports
// each difference. It reads the whole file: for tests and for doubts.
func (t *Tx) Verify() error {
	want, err := t.derived()
	if err != nil {
		return err
	}
	if have, want := t.taskBytes(), int64(uint64Of(want[bucketMeta][string(keyTaskBytes)])); have != want {
		return bourse.Errorf(bourse.CodeInternal, "%d bytes of tasks are accounted for, want %d", have, want)
	}
	var errs []error
	for _, bucket := range derivedBuckets {
		errs = append(errs, t.compare(bucket, want[bucket])...)
	}
	return errors.Join(errs...)
}

// derivedBuckets are those that follow from the others.
var derivedBuckets = []string{
	bucketMachineApp, bucketMachineName, bucketMachinePort, bucketMachineGone, bucketMachineLiving, bucketCommitted,
	bucketOrderTime, bucketLogOf, bucketRunKey, bucketRunOpen, bucketVolumeApp, bucketVolumeGone, bucketSnapshots,
	bucketTaskOpen, bucketTaskTime, bucketMachineTask, bucketHoldOf, bucketHoldEnd,
}

// derived computes, from the records, what the derived buckets hold, and how
// much ended tasks take.
func (t *Tx) derived() (map[string]map[string][]byte, error) {
	want := map[string]map[string][]byte{}
	set := func(bucket string, key, value []byte) {
		if want[bucket] == nil {
			want[bucket] = map[string][]byte{}
		}
		want[bucket][string(key)] = value
	}
	add := func(bucket, key string, n int64) {
		sum := int64(uint64Of(want[bucket][key])) + n
		set(bucket, []byte(key), uint64Bytes(uint64(sum)))
	}
	for _, expect := range []func(func(string, []byte, []byte), func(string, string, int64)) error{
		t.expectMachines, t.expectVolumes, t.expectHolds, t.expectRest,
	} {
		if err := expect(set, add); err != nil {
			return nil, err
		}
	}
	return want, nil
}

func (t *Tx) expectMachines(set func(string, []byte, []byte), add func(string, string, int64)) error {
	for f, err := range all[facts](t, bucketMachines) {
		if err != nil {
			return err
		}
		for _, e := range f.index() {
			set(e.bucket, e.key, e.value)
		}
		if f.living() {
			add(bucketMachineLiving, space(f.App, f.AppID), 1)
		}
		addTakes(add, f.Takes)
	}
	return nil
}

func (t *Tx) expectVolumes(set func(string, []byte, []byte), add func(string, string, int64)) error {
	for v, err := range t.Volumes() {
		if err != nil {
			return err
		}
		for _, e := range volumeIndex(&v) {
			set(e.bucket, e.key, e.value)
		}
		addTakes(add, v.Takes)
	}
	return nil
}

func (t *Tx) expectHolds(set func(string, []byte, []byte), add func(string, string, int64)) error {
	for h, err := range t.Holds() {
		if err != nil {
			return err
		}
		for _, e := range holdIndex(&h) {
			set(e.bucket, e.key, e.value)
		}
		addTakes(add, h.Left)
	}
	return nil
}

func addTakes(add func(string, string, int64), takes bourse.Amounts) {
	for _, x := range takes {
		if x.Amount != 0 {
			add(bucketCommitted, string(x.Resource), x.Amount)
		}
	}
}

func (t *Tx) expectRest(set func(string, []byte, []byte), add func(string, string, int64)) error {
	var taskBytes int64
	for o, err := range all[OrderRecord](t, bucketOrders) {
		if err != nil {
			return err
		}
		if o.Task != nil {
			taskBytes += t.expectTask(&o, set, add)
			continue
		}
		set(bucketOrderTime, timeKey(o.At, string(o.ID)), []byte(o.filler()))
	}
	add(bucketMeta, string(keyTaskBytes), taskBytes)
	for e, err := range all[Entry](t, bucketLog) {
		if err != nil {
			return err
		}
		prefix, err := logPrefix(e.Kind, e.ID)
		if err != nil {
			return err
		}
		set(bucketLogOf, append(prefix, uint64Bytes(e.Seq)...), nil)
	}
	for r, err := range t.Runs() {
		if err != nil {
			return err
		}
		k, err := key(r.Definition, r.Resource, r.ID)
		if err != nil {
			return err
		}
		set(bucketRunKey, []byte(r.ID), k)
		if !r.Status.Ended() {
			set(bucketRunOpen, []byte(r.ID), k)
		}
	}
	return nil
}

// compare reports how a bucket differs from what it should hold.
func (t *Tx) compare(bucket string, want map[string][]byte) (errs []error) {
	seen := map[string]bool{}
	for k, v := range t.from(bucket, nil) {
		seen[string(k)] = true
		if w, ok := want[string(k)]; !ok || !bytes.Equal(v, w) {
			errs = append(errs, bourse.Errorf(bourse.CodeInternal, "%s holds %q for %q, want %q (%t)", bucket, v, k, w, ok))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if !seen[k] {
			errs = append(errs, fmt.Errorf("%s lacks %q", bucket, k))
		}
	}
	return errs
}
