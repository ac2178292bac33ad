package kv

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	goleak.VerifyTestMain(m)
}

var errKill = errors.New("killed by the test")

// The tests' store is a simplified worker's store. It contains machines, an index and a sum that
// are derived from them, and a log.
const (
	bucketMeta       = "meta"
	bucketMachines   = "machines"
	bucketMachineApp = "machine_app" // key: app 00 id
	bucketCommitted  = "committed"   // total amount that the machines use
	bucketLog        = "log"         // key: uint64 sequence; value: id
	bucketLogOf      = "log_of"      // key: id 00 uint64 sequence
	bucketOrders     = "orders"
	bucketOrderTime  = "order_time"
	bucketApps       = "apps"
	bucketHolds      = "holds"
)

var keyLogged = []byte("logged") // number of the log's last entry

// amountPerMachine is the amount that each machine uses.
const amountPerMachine = 256

func schema() *Schema {
	s := &Schema{
		Buckets: []string{
			bucketMeta, bucketMachines, bucketMachineApp, bucketCommitted, bucketLog, bucketLogOf, bucketOrders, bucketOrderTime, bucketApps, bucketHolds,
		},
		Derived: []string{bucketMachineApp, bucketCommitted, bucketLogOf},
	}
	s.Version = 1
	return s
}

// openConfig opens a store with this schema.
func openConfig(cfg Config) (*DB, error) {
	cfg.Schema = schema()
	return Open(cfg)
}

// open opens a store in a new directory until the test ends.
func open(t testing.TB) *DB {
	t.Helper()
	return openIn(t, t.TempDir())
}

func openIn(t testing.TB, dir string) *DB {
	t.Helper()
	d, err := openConfig(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func update(t testing.TB, d *DB, fn func(Tx) error) {
	t.Helper()
	if err := d.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func view(t testing.TB, d *DB, fn func(Tx) error) {
	t.Helper()
	if err := d.View(fn); err != nil {
		t.Fatal(err)
	}
}

func machineID(n int) string { return fmt.Sprintf("abcdef%08x", n) }

// machine returns a machine's record. Its size is typical, unless ballast sets another one.
func machine(n, ballast int) []byte {
	return []byte(machineID(n) + " of app default " + strings.Repeat("x", cmp.Or(ballast, 400)))
}

// putMachine records a machine, its derived records, and a log entry.
func putMachine(n int) func(Tx) error { return putLarge(n, 0) }

func putLarge(n, ballast int) func(Tx) error {
	return func(tx Tx) error {
		id := []byte(machineID(n))
		if tx.Get(bucketMachines, id) == nil {
			sum := uint64Of(tx.Get(bucketCommitted, []byte("memory")))
			if err := tx.Put(bucketCommitted, []byte("memory"), uint64Bytes(sum+amountPerMachine)); err != nil {
				return err
			}
		}
		seq := uint64Bytes(uint64Of(tx.Get(bucketMeta, keyLogged)) + 1)
		return errors.Join(
			tx.Put(bucketMeta, keyLogged, seq), tx.Put(bucketLog, seq, id), tx.Put(bucketLogOf, slices.Concat(id, []byte{0}, seq), []byte{}),
			tx.Put(bucketMachineApp, slices.Concat([]byte("default\x00"), id), []byte{}), tx.Put(bucketMachines, id, machine(n, ballast)),
		)
	}
}

var errNoMachine = bourse.Errorf(bourse.CodeNotFound, "machine not found")

// machineOf returns errNoMachine if the machine does not exist.
func machineOf(tx Tx, id string) error {
	if tx.Get(bucketMachines, []byte(id)) == nil {
		return errNoMachine
	}
	return nil
}

// countMachines returns the number of machines in the index.
func countMachines(tx Tx) (n int) {
	for range tx.Range(bucketMachineApp, []byte("default\x00")) {
		n++
	}
	return n
}

// derived computes the derived records from the machines and the log.
func derived(tx Tx) map[string]map[string]string {
	want := map[string]map[string]string{bucketMachineApp: {}, bucketCommitted: {}, bucketLogOf: {}}
	sum := uint64(0)
	for k, v := range tx.Range(bucketMachines, nil) {
		if bytes.HasPrefix(v, k) { // the value is intact
			want[bucketMachineApp]["default\x00"+string(k)] = ""
			sum += amountPerMachine
		}
	}
	if sum > 0 {
		want[bucketCommitted]["memory"] = string(uint64Bytes(sum))
	}
	for k, v := range tx.Range(bucketLog, nil) {
		want[bucketLogOf][string(v)+"\x00"+string(k)] = ""
	}
	return want
}

// verify returns an error if the derived records do not match the others.
func verify(tx Tx) error {
	for bucket, want := range derived(tx) {
		have := map[string]string{}
		for k, v := range tx.Range(bucket, nil) {
			have[string(k)] = string(v)
		}
		if !maps.Equal(want, have) {
			return fmt.Errorf("bucket %s contains %q, want %q", bucket, have, want)
		}
	}
	last := uint64(0)
	for k := range tx.Range(bucketLog, nil) {
		last = binary.BigEndian.Uint64(k)
	}
	if n := uint64Of(tx.Get(bucketMeta, keyLogged)); n < last {
		return fmt.Errorf("the last log entry is %d, but %d entries were written", last, n)
	}
	return nil
}

// derive writes the derived records.
func derive(tx Tx) error {
	for bucket, keys := range derived(tx) {
		for k, v := range keys {
			if err := tx.Put(bucket, []byte(k), []byte(v)); err != nil {
				return err
			}
		}
	}
	return nil
}
