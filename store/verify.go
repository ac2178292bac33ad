package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
)

// derivation is what follows from all records: by bucket and key. It is computed
// from scratch, to compare it with what is recorded, or where that is lost.
type derivation map[string]map[string][]byte

func (d derivation) set(bucket string, key, value []byte) {
	if d[bucket] == nil {
		d[bucket] = map[string][]byte{}
	}
	d[bucket][string(key)] = value
}

func (d derivation) add(p part) {
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

// Verify computes every index, count and sum again from the records and reports
// each difference. It reads the whole file: for tests and for doubts.
func (t *Tx) Verify() error {
	want, err := derived(t)
	if err != nil {
		return err
	}
	if have, want := t.taskBytes(), int64(uint64Of(want[bucketMeta][keyTaskBytes])); have != want {
		return bourse.Errorf(bourse.CodeInternal, "%d bytes of tasks are accounted for, want %d", have, want)
	}
	if have, want := t.goneBytes(), int64(uint64Of(want[bucketMeta][keyGoneBytes])); have != want {
		return bourse.Errorf(bourse.CodeInternal, "%d bytes of destroyed machines are accounted for, want %d", have, want)
	}
	var errs []error
	for _, bucket := range derivedBuckets {
		errs = append(errs, want.compare(t, bucket)...)
	}
	return errors.Join(errs...)
}

// compare reports how a bucket differs from what it should hold.
func (d derivation) compare(t *Tx, bucket string) (errs []error) {
	want, seen := d[bucket], map[string]bool{}
	for k, v := range t.kv.Range(bucket, nil) {
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
