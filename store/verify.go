package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
)

// derivation contains all keys and values that are derived from the records, by bucket. It is
// computed from scratch, to check the stored entries or to replace lost ones.
type derivation map[string]map[string][]byte

func (d derivation) set(bucket string, key, value []byte) {
	if d[bucket] == nil {
		d[bucket] = map[string][]byte{}
	}
	d[bucket][string(key)] = value
}

func (d derivation) add(p sumPart) {
	if p.n != 0 {
		d.set(p.bucket, []byte(p.name), uint64Bytes(uint64(int64(uint64Of(d[p.bucket][p.name]))+p.n)))
	}
}

func derived(t *Tx) (derivation, error) {
	d := derivation{}
	for _, of := range []interface{ derive(*Tx, derivation) error }{&machines, &volumes, &holds, &orders, &entries, &runs} {
		if err := of.derive(t, d); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Verify recomputes every index and sum from the records, and returns an error that lists the
// stored entries that differ. It reads the whole store, so it is only suitable for tests and
// diagnosis.
func (t *Tx) Verify() error {
	want, err := derived(t)
	if err != nil {
		return err
	}
	if have, want := t.taskBytes(), int64(uint64Of(want[bucketMeta][keyTaskBytes])); have != want {
		return bourse.Errorf(bourse.CodeInternal, "the size of ended tasks is %d, want %d", have, want)
	}
	if have, want := t.destroyedBytes(), int64(uint64Of(want[bucketMeta][keyDestroyedBytes])); have != want {
		return bourse.Errorf(bourse.CodeInternal, "the size of destroyed machines is %d, want %d", have, want)
	}
	var errs []error
	for _, bucket := range derivedBuckets {
		errs = append(errs, want.compare(t, bucket)...)
	}
	return errors.Join(errs...)
}

// compare returns one error for each difference between a bucket and its expected contents.
func (d derivation) compare(t *Tx, bucket string) (errs []error) {
	want, seen := d[bucket], map[string]bool{}
	for k, v := range t.kv.Range(bucket, nil) {
		seen[string(k)] = true
		if w, ok := want[string(k)]; !ok || !bytes.Equal(v, w) {
			errs = append(errs, bourse.Errorf(bourse.CodeInternal, "bucket %s has %q for key %q, want %q (%t)", bucket, v, k, w, ok))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if !seen[k] {
			errs = append(errs, fmt.Errorf("bucket %s lacks key %q", bucket, k))
		}
	}
	return errs
}
